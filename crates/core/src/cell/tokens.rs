//! What somebody with a wait token asks of a cell.
//!
//! Owns: how the wait of a token stands, and that it is completed once. Whoever asks has verified the token's signature.
//!
//! One clock decides between an answer and the end of the wait: this cell's.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Op, Payload, Problem, RunId, Shape, Timestamp,
    wait_token::{Decision, EXPIRES_MS_DEFAULT, NewToken, Standing, TokenView, WaitToken},
};

use super::{Cell, Rows};
use crate::{
    object::{Fault, Hosted as _},
    ordered::OrdSet,
    run::{Input, OPEN_MAX, Phase, Run, Signal, check_signal_name},
};

/// Who has sent a signal that came by a token.
pub const TOKEN_ACTOR: &str = "token";

/// What somebody answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenAnswer {
    /// A payload, as it is.
    Payload(Payload),
    /// What the form of the page sends: as much of it as the wait takes.
    Form(Decision),
}

impl TokenAnswer {
    /// How many bytes come with it.
    pub fn size(&self) -> usize {
        match self {
            Self::Payload(payload) => payload.size(),
            Self::Form(decision) => decision.comment.as_ref().map_or(0, String::len),
        }
    }
}

/// A token that somebody wants, until it is signed.
#[derive(Clone, Debug)]
pub struct Unsigned {
    /// What it says. Its cell does not know its namespace; whoever signs it does.
    pub token: WaitToken,
    /// The id of the key that the run has made tokens with, if it has.
    pub key: Option<String>,
}

impl Cell {
    /// A token of a wait. Changes nothing.
    pub fn new_token<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &RunId,
        new: NewToken,
    ) -> Result<Unsigned, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.find(rows, id)?;
        if let Phase::Ended { .. } = run.phase {
            return Err(Problem::new(Code::RunEnded, "The run has ended, and waits for nothing.").into());
        }
        let NewToken { name, occurrence, expires_ms } = new;
        check_signal_name(&name)?;
        let is_wanted = |of: u32| occurrence.is_none_or(|wanted| wanted == of);
        let mut waits = run.open.iter().filter(|open| open.signal.as_deref() == Some(name.as_str()));
        let wait = waits.find(|open| is_wanted(open.op.occurrence));
        let Some(occurrence) = wait.map(|wait| wait.op.occurrence).or(occurrence) else {
            let detail = format!(
                "The run does not wait for '{name}' now. Ask again when it does, or send `occurrence` for a token in \
                 advance: 0 is the first wait of that name."
            );
            return Err(Problem::new(Code::WaitNotFound, detail).into());
        };
        let expires_at = now.plus_millis(expires_ms.unwrap_or(EXPIRES_MS_DEFAULT));
        let ends_at = wait.and_then(|wait| wait.until);
        let token = WaitToken {
            namespace: String::new(),
            run: id.clone(),
            life: run.life_number(),
            name,
            occurrence,
            expires_at: ends_at.map_or(expires_at, |ends_at| expires_at.min(ends_at)),
        };
        Ok(Unsigned { token, key: run.token_key })
    }

    /// What a token is about, and how its wait stands.
    pub fn show_token<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        token: &WaitToken,
    ) -> Result<TokenView, Fault<R::Error>> {
        let now = self.now(clock);
        let (run, status) = self.look_up(rows, now, token)?;
        let wait = run.wait_of(token).filter(|_| status == Standing::Open);
        let asked = wait.and_then(|wait| wait.asked.as_deref());
        let title = match asked.map(|asked| asked.title.as_str()).unwrap_or_default() {
            "" => &token.name,
            title => title,
        };
        let shape = wait.map(|wait| &wait.shape);
        Ok(TokenView {
            status,
            title: if wait.is_some() { title.to_owned() } else { String::new() },
            detail: asked.map(|asked| asked.detail.clone()).unwrap_or_default(),
            expires_at: token.expires_at,
            expects: shape.filter(|shape| !shape.is_any()).map(Shape::describe),
            has_form: shape.is_some_and(|shape| Decision::accept().fitting(shape).is_some()),
        })
    }

    /// Completes the wait of a token. Says whether this is what has completed it.
    pub fn complete_token<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        token: &WaitToken,
        answer: TokenAnswer,
    ) -> Result<bool, Fault<R::Error>> {
        let now = self.now(clock);
        let (run, status) = self.look_up(rows, now, token)?;
        if status == Standing::Answered {
            return Ok(false);
        }
        let payload = match answer {
            TokenAnswer::Payload(payload) => payload,
            TokenAnswer::Form(decision) => {
                let shape = run.wait_of(token).map_or(&Shape::Any, |wait| &wait.shape);
                decision.fitting(shape).ok_or_else(|| Fault::Rejected(no_form(&shape.describe())))?
            }
        };
        if !run.is_asleep_for(token) {
            self.check_room(rows, payload.size(), "signals that nobody waits for")?;
            run.check_inbox(self.signal_limits, payload.size() as u64).map_err(Fault::Rejected)?;
        }
        let signal = Signal {
            name: token.name.clone(),
            id: Some(token.signal_id()),
            nonce: None,
            payload,
            by: Some(TOKEN_ACTOR.to_owned()),
            to: Some(token.occurrence),
        };
        self.drive_run(rows, now, run.into(), None, |slot| Input::Signal { signal, slot })?;
        self.dispatch(rows, now);
        Ok(true)
    }

    /// The run of a token, and how its wait stands; a refusal if it is over.
    fn look_up<R: Rows>(
        &self,
        rows: &R,
        now: Timestamp,
        token: &WaitToken,
    ) -> Result<(Run, Standing), Fault<R::Error>> {
        let run = match self.find(rows, &token.run) {
            Ok(run) => run,
            Err(Fault::Rejected(problem)) if problem.code == Code::RunNotFound => {
                return Err(revoked("The run is no longer there.").into());
            }
            Err(fault) => return Err(fault),
        };
        let has = |id: &str| rows.has_signal(token.run.number, id).map_err(Fault::Storage);
        // Before anything else: whoever repeats an answer hears the same again. The id of one that is dropped goes with it.
        if has(&token.signal_id())? {
            return Ok((run, Standing::Answered));
        }
        if let Phase::Ended { .. } = run.phase {
            return Err(revoked("The run has ended.").into());
        }
        if now >= token.expires_at {
            let detail = "The token has expired. Ask the sender for a new link.";
            return Err(Problem::new(Code::TokenExpired, detail).into());
        }
        if run.wait_of(token).is_some() {
            return Ok((run, Standing::Open));
        }
        if token.life != run.life_number() || has(&WaitToken::over_id(token.life, &token.op()))? {
            return Err(revoked("The run has continued without an answer.").into());
        }
        Ok((run, Standing::Early))
    }
}

/// Those of these waits that are not known to be over: each activation of a run names all that it knows of.
pub(super) fn news_of_waits<R: Rows>(rows: &R, run: &Run, over: Vec<Op>) -> Result<Vec<Op>, Fault<R::Error>> {
    if over.is_empty() || over.len() > OPEN_MAX {
        // As many as that are refused.
        return Ok(over);
    }
    // One that the run has come to again, after it was taken back, is over again.
    let open: OrdSet<_> = run.open.iter().map(|open| &open.op).collect();
    let mut news = Vec::new();
    for op in over {
        let id = WaitToken::over_id(run.life_number(), &op);
        if open.contains(&op) || !rows.has_signal(run.id.number, &id).map_err(Fault::Storage)? {
            news.push(op);
        }
    }
    Ok(news)
}

fn revoked(why: &str) -> Problem {
    Problem::new(
        Code::TokenRevoked,
        format!("{why} Nothing was recorded, and an answer is no longer needed."),
    )
}

fn no_form(expects: &str) -> Problem {
    let detail =
        format!("The run waits for {expects}. Send that as JSON, with `Content-Type: application/json`.");
    Problem::new(Code::SignalMismatch, detail)
}
