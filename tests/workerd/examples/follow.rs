//! Follows a run to its end: `follow http://127.0.0.1:8787/api RUN KEY`. The function is the one of `docs/streams.md`.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [api, run, key] = arguments.as_slice() else { return Err("say: follow API RUN KEY".into()) };
    follow(api, run, key).await
}

async fn follow(api: &str, run: &str, key: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut cursor = None::<String>;
    loop {
        let request = reqwest::Client::new().get(format!("{api}/executions/{run}/stream")).bearer_auth(key);
        let request = cursor.iter().fold(request, |request, id| request.header("last-event-id", id));
        let mut response = request.send().await?.error_for_status()?;
        let mut text = Vec::new();
        // An error here is a connection that broke: come back.
        while let Ok(Some(chunk)) = response.chunk().await {
            text.extend_from_slice(&chunk);
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let block = String::from_utf8(text.drain(..end + 2).collect())?;
                let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
                let event: serde_json::Value = serde_json::from_str(data)?;
                println!("{} {}", event["type"], event["data"]);
                if event["type"] == "end" {
                    return Ok(());
                }
                cursor = event["id"].as_str().map(str::to_owned);
            }
        }
    }
}
