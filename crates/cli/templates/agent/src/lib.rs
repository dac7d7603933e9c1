//! An agent in three phases: it plans, works with tools until it knows enough, and writes its answer, whose tokens you
//! can follow live. Before it sends anything to anyone, a person has to approve. A crash repeats no call that is on
//! record.

mod model;
mod tools;

use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

/// How many times it may use a tool.
const ROUNDS_MAX: u64 = 8;

/// What somebody wants of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// In plain words.
    pub goal: String,
}

/// What a run of [`agent`] returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The answer.
    pub answer: String,
    /// What it did on the way.
    pub notes: Vec<String>,
}

/// What the model wants to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Look something up. Harmless, so nobody is asked.
    Search {
        /// What for.
        query: String,
    },
    /// Send a message. Nobody can take it back, so a person decides.
    Send {
        /// To whom.
        to: String,
        /// What.
        text: String,
    },
    /// It knows enough.
    Finish,
}

/// Works on a task until it can answer.
#[workflow(timeout = "7d")]
async fn agent(ctx: Ctx, task: Task) -> Result<Report> {
    ctx.progress(0.0, "planning");
    let plan =
        ctx.step_with("plan", async |info| model::plan(&info, &task.goal).await).timeout("2 minutes").await?;
    ctx.log().info(format!("plan: {plan}"));

    let mut notes = Vec::new();
    for round in 0..ROUNDS_MAX {
        ctx.progress_of(round, ROUNDS_MAX, "working");
        let decide = async |info: stepwell::StepInfo| model::decide(&info, &task.goal, &plan, &notes).await;
        let action = ctx.step_with("decide", decide).timeout("2 minutes").await?;
        match action {
            Action::Search { query } => {
                let found = ctx.step_with("search", async |info| tools::search(&info, &query).await).await?;
                notes.push(format!("searched for '{query}': {found}"));
            }
            Action::Send { to, text } if is_approved(&ctx, &to, &text).await? => {
                ctx.step_with("send", async |info| tools::send(&info, &to, &text).await).await?;
                notes.push(format!("sent to {to}: {text}"));
            }
            Action::Send { to, .. } => notes.push(format!("a person refused the message to {to}")),
            Action::Finish => break,
        }
    }

    ctx.progress(90.0, "answering");
    // A step that runs again publishes its tokens again.
    let write = async |info: stepwell::StepInfo| {
        model::answer(&info, &task.goal, &notes, &|token| ctx.publish("tokens", token)).await
    };
    let answer = ctx.step_with("answer", write).timeout("5 minutes").await?;
    Ok(Report { answer, notes })
}

/// Whether a message may go out. Silence for two days means no.
async fn is_approved(ctx: &Ctx, to: &str, text: &str) -> Result<bool> {
    ctx.log().warn(format!("wants to send to {to}: {text}"));
    Ok(ctx.wait::<bool>("approval").timeout("2 days").or_none().await?.unwrap_or(false))
}

/// All workflows of this program.
#[stepwell::main]
pub fn app() -> App {
    App::new().workflow(agent)
}
