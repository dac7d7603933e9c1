//! The routes of wait tokens: somebody without a key completes one wait of one run.
//!
//! A token is verified before anything else is read or asked ([`check`]): one whose signature does not match gets the
//! same answer as one that never existed, and counts as a guess. Whoever has a good one is never told to wait for the
//! bad ones of others behind the same address. `GET` and `HEAD` complete nothing: whoever looks at a
//! link for somebody else, such as a mail scanner, changes nothing.

use percent_encoding::percent_decode_str;
use stepwell_core::{cell::TokenAnswer, run::check_signal_name};
use stepwell_protocol::{
    Code, Payload,
    routes::Route,
    text::cut,
    wait_token::{Decision, NewToken, PATH, Verdict, WaitToken},
};
use worker::{Env, Request, Url};

use super::{
    body,
    error::Refusal,
    front::Front,
    generations::{has_cell, locate},
    guessing,
    request::{check_name, pairs},
    response::Response,
};
use crate::{calls::cell::Operation, keyring::Keyring};

/// The longest comment that is kept, in bytes.
const COMMENT_LENGTH_MAX: usize = 4_096;

/// Whether a route is asked with a token.
pub fn is_token_route(route: Option<Route>) -> bool {
    matches!(route, Some(Route::ShowToken | Route::CompleteToken))
}

/// Refuses a token that is not good, before anything else is read.
pub fn check(request: &Request, url: &Url, env: &Env) -> Result<(), Refusal> {
    let text = url.path().strip_prefix(PATH).map(|text| percent_decode_str(text).decode_utf8_lossy());
    if text.is_some_and(|text| Keyring::of(env).read_token(&text).is_some()) {
        return Ok(());
    }
    guessing::bad_token(request)?;
    Err(not_found())
}

/// `POST /api/executions/{id}/tokens`
pub async fn create(front: &Front, id: &str, body: &str) -> Result<Response, Refusal> {
    let run = locate(front, id).await?;
    let new: NewToken = body::read(body)?;
    check_name("wait", &new.name)?;
    check_signal_name(&new.name).map_err(Refusal)?;
    if new.expires_ms == Some(0) {
        return Err(Refusal::new(Code::InvalidRequest, "A token is good for at least a millisecond."));
    }
    front.ask(&run.place, Operation::NewToken { number: run.number, suffix: run.suffix, new }).await
}

/// `GET /api/tokens/{token}`
pub async fn show(front: &Front, text: &str) -> Result<Response, Refusal> {
    let (front, token) = holding(front, text).await?;
    let place = token.run.place.clone();
    front.ask(&place, Operation::ShowToken { token }).await
}

/// `POST /api/tokens/{token}`
pub async fn complete(front: &Front, text: &str, body: &str) -> Result<Response, Refusal> {
    let (front, token) = holding(front, text).await?;
    let answer = answer(body)?;
    let place = token.run.place.clone();
    front.ask(&place, Operation::CompleteToken { token, answer }).await
}

/// What was verified once, with what it stands for: its run's namespace, and nobody's key.
async fn holding(front: &Front, text: &str) -> Result<(Front, WaitToken), Refusal> {
    let token = Keyring::of(front.env()).read_token(text).ok_or_else(not_found)?;
    let front = front.holding(&token.namespace);
    if !has_cell(&front, &token.run.place).await? {
        let detail = "The run is no longer there. Nothing was recorded, and an answer is no longer needed.";
        return Err(Refusal::new(Code::TokenRevoked, detail));
    }
    Ok((front, token))
}

/// What a body says: the fields of the page's form, or any JSON. No text is both.
fn answer(body: &str) -> Result<TokenAnswer, Refusal> {
    if body::is_empty(body) {
        let detail = "The body is empty. Send the answer as JSON, or a form with `decision=accept` or `decision=reject`.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    match Payload::from_text(body.to_owned()) {
        Ok(payload) => Ok(TokenAnswer::Payload(payload)),
        Err(error) => decision(body).map(TokenAnswer::Form).ok_or_else(|| {
            let detail = format!(
                "The body is neither JSON ({error}) nor a form with `decision=accept` or `decision=reject`."
            );
            Refusal::new(Code::InvalidRequest, detail)
        }),
    }
}

fn decision(form: &str) -> Option<Decision> {
    let mut decided = None;
    let mut comment = String::new();
    for (name, value) in pairs(form) {
        match name.as_str() {
            // Twice is a mistake, whichever is meant.
            "decision" if decided.is_some() => return None,
            "decision" => {
                decided = Some(match value.as_str() {
                    "accept" => Verdict::Accept,
                    "reject" => Verdict::Reject,
                    _ => return None,
                });
            }
            "comment" => comment = value,
            _ => {}
        }
    }
    cut(&mut comment, COMMENT_LENGTH_MAX);
    let comment = Some(comment.trim().to_owned()).filter(|comment| !comment.is_empty());
    decided.map(|decision| Decision { decision, comment })
}

fn not_found() -> Refusal {
    let detail = "There is no such token. Check that the link is complete, or ask the sender for a new one.";
    Refusal::new(Code::TokenNotFound, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_or_the_form_and_never_nothing() {
        let form = |body: &str| match answer(body) {
            Ok(TokenAnswer::Form(decision)) => Some((decision.is_accepted(), decision.comment)),
            Ok(TokenAnswer::Payload(_)) | Err(_) => None,
        };
        assert_eq!(form("decision=accept"), Some((true, None)));
        assert_eq!(form("comment=+so+be+it%21+&decision=reject"), Some((false, Some("so be it!".into()))));
        for json in ["true", "null", "{\"decision\":\"accept\"}", "\"decision=accept\""] {
            assert!(matches!(answer(json), Ok(TokenAnswer::Payload(_))), "{json}");
        }
        for bad in ["", "  ", "decision=maybe", "comment=x", "decision=accept&decision=reject", "{"] {
            assert!(answer(bad).is_err(), "{bad}");
        }
    }
}
