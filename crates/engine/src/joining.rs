//! Starts that do not each become a run: where they meet, and whether a rate drops them.

use stepwell_core::{
    cell::{Joins, joins_by},
    lane::{drops, start_id},
    object::Address,
    pools::{Ask, Walk, spread},
};
use stepwell_protocol::{
    Code, Payload, Place, Problem, json,
    lane::{Flow, Limit},
    span::in_words,
};
use worker::Env;

use crate::{calls::lanes::Call, log, object, runtime, settings::Deployment};

/// Refuses a start that a rate of its workflow has no room for. `key` is what the start is known by if it comes again.
pub async fn check_rates(
    env: &Env,
    namespace: &str,
    workflow: &str,
    (flow, input): (Option<&Flow>, &Payload),
    key: &str,
) -> Result<(), Problem> {
    let Some(flow) = flow else { return Ok(()) };
    let limits = drops(flow, input);
    if limits.is_empty() {
        return Ok(());
    }
    let call = Call::Admit { start: start_id(key), limits: limits.clone() };
    let silent = || Problem::new(Code::Internal, "The lane of the workflow did not answer. Try again.");
    let asked = object::ask(env, &Address::lane(namespace, &flow.lane_of(workflow)), &call).await;
    let (status, body) = asked.map_err(|thrown| {
        log::error!("a lane did not answer: {}", runtime::message(&thrown));
        silent()
    })?;
    if status != 200 {
        return Err(json::from_str(&body).unwrap_or_else(|_| silent()));
    }
    match json::from_str::<Option<u64>>(&body) {
        Ok(None) => Ok(()),
        Ok(Some(wait_ms)) => Err(dropped(workflow, &limits, wait_ms)),
        Err(_) => Err(silent()),
    }
}

fn dropped(workflow: &str, limits: &[Limit], wait_ms: u64) -> Problem {
    let rate = |limit: &Limit| {
        let per = in_words(limit.per_ms.unwrap_or_default());
        let of =
            if limit.by.is_empty() { String::new() } else { format!(" with {} = '{}'", limit.by, limit.key) };
        format!("{} in {per}{of}", limit.max)
    };
    let rates: Vec<_> = limits.iter().map(rate).collect();
    let detail = format!(
        "The workflow '{workflow}' does not start more runs for now: at most {}. Nothing was started; try again later.",
        rates.join(", ")
    );
    let seconds = u32::try_from(wait_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
    Problem::new(Code::StartDropped, detail).after(seconds.max(1))
}

/// The way of a start to the cell where it meets the others that it may become one run with, or where they met before
/// the pool grew.
pub struct Meeting<'a> {
    key: String,
    walk: Walk<'a>,
}

impl<'a> Meeting<'a> {
    /// Of a start; nothing, if each start of its workflow is a run.
    pub fn of(
        deployment: &'a Deployment,
        workflow: &str,
        flow: Option<&Flow>,
        input: &Payload,
    ) -> Option<Self> {
        let key = joins_by(workflow, flow, input)?;
        let walk = Walk::new(&deployment.pool, spread(&key), runtime::clock(), deployment.key_days);
        Some(Self { key, walk })
    }

    /// The cell to ask, and for what.
    pub fn ask(&self) -> (Place, Joins) {
        let (at, to) = match self.walk.ask() {
            Ask::Start { at } => (at, None),
            Ask::Reserve { at, to } => (at, Some(to)),
        };
        (at, Joins { key: self.key.clone(), to, asks: false })
    }

    /// The cell has sent it on. Says whether that leads anywhere: the way goes up the generations only, and ends.
    pub fn sent_on(&mut self, to: Place) -> bool {
        self.walk.sent_on(to)
    }
}
