//! The model, behind the chat interface that most of them share. `MODEL_URL` says where it is, `MODEL` its name.

use futures::StreamExt as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stepwell::{Error, Result, StepInfo, fetch};

use crate::Action;

#[derive(Serialize)]
struct Chat<'a> {
    model: String,
    messages: [Message<'a>; 2],
    stream: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
}

#[derive(Deserialize)]
struct Completion<T> {
    choices: Vec<T>,
}

#[derive(Deserialize)]
struct Whole {
    message: Text,
}

#[derive(Deserialize)]
struct Piece {
    delta: Text,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default)]
    content: String,
}

/// How to reach the goal, in a sentence or two.
pub async fn plan(info: &StepInfo, goal: &str) -> Result<String> {
    ask(info, "Plan in one sentence how to reach the goal.", goal).await
}

/// What to do next.
pub async fn decide(info: &StepInfo, goal: &str, plan: &str, notes: &[String]) -> Result<Action> {
    let system = "Choose the next action. Answer with JSON alone: {\"action\":\"search\",\"query\":…}, \
                  {\"action\":\"send\",\"to\":…,\"text\":…} or {\"action\":\"finish\"}.";
    let text =
        ask(info, system, &format!("Goal: {goal}\nPlan: {plan}\nSo far:\n{}", notes.join("\n"))).await?;
    // Asked again, it may choose better words.
    read(&text)
}

/// The answer. Each token is told as it comes.
pub async fn answer(info: &StepInfo, goal: &str, notes: &[String], tell: &dyn Fn(&str)) -> Result<String> {
    let user = format!("Goal: {goal}\nNotes:\n{}", notes.join("\n"));
    let mut response =
        request(info, "Answer the goal from the notes.", &user, true)?.send().await?.ok()?.into_response();
    let mut stream = response.stream()?;
    let (mut answer, mut bytes) = (String::new(), Vec::new());
    while let Some(chunk) = stream.next().await {
        bytes.extend(chunk?);
        // A chunk may end anywhere, also within a character.
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = bytes.drain(..=end).collect();
            if let Some(token) = token(&String::from_utf8_lossy(&line))? {
                tell(&token);
                answer.push_str(&token);
            }
        }
    }
    Ok(answer)
}

/// The token in a line of server-sent events, if it has one.
fn token(line: &str) -> Result<Option<String>> {
    let Some(data) = line.trim().strip_prefix("data:").map(str::trim) else { return Ok(None) };
    if data == "[DONE]" {
        return Ok(None);
    }
    let completion: Completion<Piece> = read(data)?;
    Ok(completion.choices.into_iter().next().map(|piece| piece.delta.content).filter(|text| !text.is_empty()))
}

async fn ask(info: &StepInfo, system: &str, user: &str) -> Result<String> {
    let completion: Completion<Whole> =
        request(info, system, user, false)?.send().await?.ok()?.json().await?;
    let whole = completion.choices.into_iter().next();
    whole.map(|whole| whole.message.content).ok_or_else(|| Error::msg("the model has said nothing"))
}

fn request(info: &StepInfo, system: &str, user: &str, stream: bool) -> Result<fetch::Fetch> {
    let env = stepwell::env();
    let messages = [Message { role: "system", content: system }, Message { role: "user", content: user }];
    let chat = Chat { model: env.var("MODEL")?, messages, stream };
    let url = format!("{}/v1/chat/completions", env.var("MODEL_URL")?);
    Ok(stepwell::fetch(info, url).bearer(&env.secret("MODEL_KEY")?).json(&chat))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::msg(format!("the model has said '{text}': {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_from_server_sent_events() {
        let line = r#"data: {"choices":[{"delta":{"content":"Hel"}}]}"#;
        assert_eq!(token(line).expect("it can be read").as_deref(), Some("Hel"));
        for other in ["data: [DONE]", "", ": ping", r#"data: {"choices":[{"delta":{}}]}"#] {
            assert_eq!(token(other).expect("it can be read"), None, "{other}");
        }
        assert!(token("data: nonsense").is_err());
    }
}
