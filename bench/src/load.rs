//! The client: some connections that are kept open, each with one run at a time.
//!
//! The same for every system, down to the headers. It runs on one thread and does little besides, because it
//! shares the machine's cores with what it measures.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use stepwell_workerd_tests::engine::KEY;
use tokio::{net::TcpStream, time::timeout};

use crate::system::System;

/// Longer than any run may take; a run that hangs ends the bench.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs at once while a process warms up.
const WARM_UP_CONCURRENCY: u32 = 16;

/// After this long, a process is as warm as it gets.
const WARM_UP_MAX: Duration = Duration::from_secs(30);

/// Runs to start, one after the other on each connection.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Whom to ask.
    pub system: System,
    /// Where it listens.
    pub address: &'a str,
    /// The steps of each run.
    pub steps: u32,
    /// How many runs at once.
    pub concurrency: u32,
    /// For how long nothing is measured.
    pub warm_up: Duration,
    /// For how long after that.
    pub measured: Duration,
    /// It ends sooner when this many runs were started.
    pub runs_max: u64,
}

/// How far all clients together have come.
struct Progress {
    begin: Instant,
    started: Cell<u64>,
    /// When the last of the runs that may be was started.
    stopped: Cell<Option<Instant>>,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// How long each run took, of those whose end was answered in the measured time; sorted.
    pub latencies: Vec<Duration>,
    /// All runs, those of the warm-up and those that ended late too.
    pub runs: u64,
    /// The measured time.
    pub measured: Duration,
}

/// What every system answers.
#[derive(Deserialize)]
struct Ended<'a> {
    status: &'a str,
    output: Option<u64>,
}

impl Load<'_> {
    /// Starts so many runs of this kind that the runtime has compiled what is busy for good: a fresh process
    /// compiles everything quickly first, and better once it has proved busy. How many that takes does not depend
    /// on how fast the machine is, so this counts runs and not seconds.
    pub async fn warm_process(&self, runs: u64) -> Result<()> {
        let (began, mut done) = (Instant::now(), 0);
        let slice = Duration::from_millis(250);
        let load =
            Load { concurrency: WARM_UP_CONCURRENCY, warm_up: Duration::ZERO, measured: slice, ..*self };
        while done < runs && began.elapsed() < WARM_UP_MAX {
            let load = Load { runs_max: runs - done, ..load };
            done += load.run(|_, _| Ok(())).await?.runs;
        }
        Ok(())
    }

    /// Starts runs until the time is over. Each answer must be a run that has completed with the right output;
    /// `observe` sees it too.
    pub async fn run(&self, observe: impl Fn(&HeaderMap, &[u8]) -> Result<()>) -> Result<Sample> {
        let begin = Instant::now() + self.warm_up;
        let progress = Progress { begin, started: Cell::new(0), stopped: Cell::new(None) };
        let clients = (0..self.concurrency).map(|_| self.client(&progress, &observe));
        let patience = self.warm_up + self.measured + PATIENCE;
        let each = timeout(patience, try_join_all(clients)).await.context("a run never ended")??;
        let measured = progress.stopped.get().map_or(self.measured, |at| at.saturating_duration_since(begin));
        let mut sample = Sample { measured, ..Sample::default() };
        for (latencies, runs) in each {
            sample.latencies.extend(latencies);
            sample.runs += runs;
        }
        sample.latencies.sort_unstable();
        Ok(sample)
    }

    async fn client(
        &self,
        progress: &Progress,
        observe: &impl Fn(&HeaderMap, &[u8]) -> Result<()>,
    ) -> Result<(Vec<Duration>, u64)> {
        let end = progress.begin + self.measured;
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the sender; its errors come out there.
        tokio::spawn(connection);
        let (mut latencies, mut runs) = (Vec::new(), 0);
        let body = Bytes::from(self.steps.to_string());
        loop {
            let sent = Instant::now();
            if sent >= end || progress.stopped.get().is_some() {
                return Ok((latencies, runs));
            }
            progress.started.set(progress.started.get() + 1);
            if progress.started.get() >= self.runs_max {
                progress.stopped.set(Some(sent));
            }
            sender.ready().await?;
            let (head, answer) = sender.send_request(self.request(&body)?).await?.into_parts();
            let answer = answer.collect().await?.to_bytes();
            let answered = Instant::now();
            self.check(head.status, &answer)?;
            observe(&head.headers, &answer)?;
            runs += 1;
            let is_in_time = answered < end && progress.stopped.get().is_none();
            if answered >= progress.begin && is_in_time {
                latencies.push(answered - sent);
            }
        }
    }

    fn request(&self, body: &Bytes) -> Result<Request<Full<Bytes>>> {
        Ok(Request::post(self.system.path())
            .header("host", self.address)
            .header("authorization", format!("Bearer {KEY}"))
            .header("prefer", "wait=60")
            .body(Full::new(body.clone()))?)
    }

    fn check(&self, status: StatusCode, answer: &[u8]) -> Result<()> {
        let shown = || format!("{}: {status} {}", self.system.name(), String::from_utf8_lossy(answer));
        ensure!(status == StatusCode::CREATED, shown());
        let ended: Ended = serde_json::from_slice(answer).with_context(shown)?;
        let steps = u64::from(self.steps);
        // Each step gives its number.
        let expected = steps * steps.saturating_sub(1) / 2;
        ensure!(ended.status == "completed" && ended.output == Some(expected), shown());
        Ok(())
    }
}

impl Sample {
    /// Runs that ended in a second.
    pub fn runs_per_s(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { as_f64(self.latencies.len()) / seconds } else { 0.0 }
    }

    /// The time in milliseconds within which this share of the runs was done.
    pub fn percentile_ms(&self, share: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within the list")]
        let rank = (as_f64(self.latencies.len()) * share).ceil() as usize;
        self.latencies.get(rank.saturating_sub(1)).map_or(0.0, |latency| latency.as_secs_f64() * 1_000.0)
    }
}

/// A count as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "counts of this program are far below 2^52")]
pub fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "whole numbers, which come out exactly")]
mod tests {
    use super::*;

    fn sample(milliseconds: impl IntoIterator<Item = u64>) -> Sample {
        Sample {
            latencies: milliseconds.into_iter().map(Duration::from_millis).collect(),
            runs: 0,
            measured: Duration::from_secs(2),
        }
    }

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let hundred = sample(1..=100);
        assert_eq!([0.5, 0.99, 1.0].map(|share| hundred.percentile_ms(share)), [50.0, 99.0, 100.0]);
        assert_eq!([0.5, 0.99].map(|share| sample([7]).percentile_ms(share)), [7.0, 7.0]);
        assert_eq!(sample([]).percentile_ms(0.5), 0.0);
    }

    #[test]
    fn runs_per_second_are_those_of_the_measured_time() {
        assert_eq!(sample(1..=100).runs_per_s(), 50.0);
    }

    #[test]
    fn only_a_completed_run_with_the_right_output_counts() {
        let load = Load {
            system: System::Bare,
            address: "",
            steps: 10,
            concurrency: 1,
            warm_up: Duration::ZERO,
            measured: Duration::ZERO,
            runs_max: u64::MAX,
        };
        let check = |status, answer: &str| load.check(status, answer.as_bytes()).is_ok();
        assert!(check(StatusCode::CREATED, r#"{"status":"completed","output":45}"#));
        assert!(!check(StatusCode::CREATED, r#"{"status":"completed","output":44}"#));
        assert!(!check(StatusCode::CREATED, r#"{"status":"running"}"#));
        assert!(!check(StatusCode::OK, r#"{"status":"completed","output":45}"#));
    }
}
