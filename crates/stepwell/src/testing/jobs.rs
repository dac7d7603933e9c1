//! Jobs that a run has sent in a test.

use serde::de::DeserializeOwned;
use stepwell_protocol::queue::SentJob;

use super::Outcome;

impl Outcome {
    /// The bodies of the jobs that the run has sent to this queue, in order: see [`crate::Ctx::send`].
    ///
    /// # Panics
    /// If one of them is of another type.
    #[track_caller]
    pub fn sent<T: DeserializeOwned>(&self, queue: &str) -> Vec<T> {
        let jobs = self.jobs.iter().filter(|job| job.queue == queue);
        let decode = |job: &SentJob| match job.body.decode() {
            Ok(body) => body,
            Err(error) => {
                panic!("a job of '{queue}' says {}, which is of another type: {error}", job.body.text())
            }
        };
        jobs.map(decode).collect()
    }
}
