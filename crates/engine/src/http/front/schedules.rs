//! Asks the station of the namespace's schedules, and passes its answers on.

use stepwell_core::access::ROOT;
use stepwell_protocol::Code;

use super::{Front, cells::passed_on};
use crate::{
    calls::{
        catalog,
        schedules::{self, Call, Request},
    },
    http::{error::Refusal, response::Response},
    log, runtime,
};

impl Front {
    /// Asks the station of schedules on the caller's behalf. The catalog says who that is, and whether they may.
    pub async fn ask_schedules(&self, request: Request) -> Result<Response, Refusal> {
        self.check_somebody()?;
        let by = if self.is_limited() {
            self.ask_catalog::<String>(catalog::Request::Actor).await?
        } else {
            ROOT.to_owned()
        };
        let asked = schedules::ask_whole(&self.env, &self.namespace, &Call { by, request }).await;
        let answer = asked.map_err(|thrown| {
            log::error!("the schedules did not answer: {}", runtime::message(&thrown));
            Refusal::new(Code::Internal, "The schedules of the namespace did not answer. Try again.")
        })?;
        Ok(passed_on(&answer))
    }
}
