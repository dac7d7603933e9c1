//! Sessions with keys, namespaces, settings, sessions and issuers from a terminal, compared with a transcript that was
//! looked at; and no key anywhere but where it belongs.

use anyhow::{Context as _, Result};
use serde_json::Value;
use stepwell_workerd_tests::{
    TestResult,
    cli::{Ran, Terminal, compare},
    engine::{Engine, Form, KEY},
};

/// Something secret that a command has shown: alone on its standard output.
fn secret(ran: &Ran) -> Result<String> {
    let line = ran.stdout.strip_suffix('\n').context("it ends with a line break")?;
    anyhow::ensure!(ran.code == Some(0) && line.starts_with("sw_") && !line.contains('\n'), "{ran:?}");
    Ok(line.to_owned())
}

/// The id that stands in a key.
fn id(key: &str) -> String {
    key.rsplit('_').next().unwrap_or_default().chars().take(8).collect()
}

#[tokio::test]
async fn a_session_with_keys_and_namespaces_reads_as_it_should() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;

    // With the deployment's own key.
    terminal.run(&["namespaces", "list"]).await?;
    let ran = terminal.run(&["namespaces", "create", "acme", "--live-runs", "1000"]).await?;
    let admin = secret(&ran)?;
    terminal.run(&["namespaces", "list"]).await?;
    terminal.run(&["namespaces", "set", "acme", "--requests-per-second", "500"]).await?;
    terminal.run(&["namespaces", "set", "acme", "--live-runs", "none"]).await?;
    terminal.run(&["namespaces", "show", "acme"]).await?;
    let arguments = ["keys", "create", "ops", "--scope", "admin", "--namespace", "acme", "--quiet"];
    let spare = secret(&terminal.run(&arguments).await?)?;
    let issuer =
        ["https://acme.example", "--audience", "stepwell", "--jwks-url", "https://acme.example/certs"];
    let rest = ["--namespace-claim", "tenant", "--allow-namespace", "acme", "--scope", "read"];
    terminal.run(&[&["issuers", "set"][..], &issuer, &rest].concat()).await?;
    terminal.run(&["issuers", "list"]).await?;
    terminal.run(&["issuers", "remove", "https://acme.example"]).await?;
    terminal.run(&["issuers", "list"]).await?;

    // With the key of the namespace.
    terminal.set_key(&admin);
    let scopes = ["--scope", "write:nap", "--scope", "read"];
    let made = terminal.run(&[&["keys", "create", "ci", "--expires", "30d"][..], &scopes].concat()).await?;
    let ci = secret(&made)?;
    let rotated = secret(&terminal.run(&["keys", "rotate", &id(&ci), "--overlap", "1h"]).await?)?;
    terminal.run(&["keys", "revoke", &id(&rotated)]).await?;
    terminal.run(&["keys", "list"]).await?;
    terminal.run(&["settings", "set", "--timeout", "1h", "--retention", "30d"]).await?;
    terminal.run(&["settings", "set", "--workflow", "nap", "--retention", "0s"]).await?;
    terminal.run(&["settings", "set", "--timeout", "none"]).await?;
    terminal.run(&["settings", "remove", "nap"]).await?;
    let token = secret(&terminal.run(&["session", "open"]).await?)?;
    terminal.run(&["session", "show"]).await?;
    terminal.run(&["audit", "--limit", "4"]).await?;
    terminal.run(&["session", "list"]).await?;
    terminal.run(&["session", "end", "00000000"]).await?;
    terminal.set_key(&token);
    terminal.run(&["session", "show"]).await?;
    terminal.run(&["session", "end"]).await?;
    terminal.run(&["session", "show"]).await?;

    // What goes wrong.
    terminal.set_key(&ci);
    terminal.run(&["keys", "list"]).await?;
    terminal.run(&["namespaces", "create", "mine"]).await?;
    terminal.set_key(&admin);
    let cut = &spare[..40];
    for (arguments, code) in [
        (&["keys", "revoke", "00000000"][..], 1),
        (&["keys", "revoke", cut], 2),
        (&["keys", "revoke", &spare, &spare], 2),
        (&["keys", "rotate", &id(&rotated)], 1),
        (&["keys", "create", "ci"], 2),
        (&["keys", "create", "ci", "--scope", "everything"], 2),
        (&["keys", "create", "ci", "--scope", "read", "--expires", "2001-01-01"], 2),
        (&["settings", "set"], 2),
        (&["settings", "set", "--timeout", "soon"], 2),
        (&["list", "--key", cut], 1),
    ] {
        let ran = terminal.run(arguments).await?;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(!ran.stderr.contains(cut) && !ran.stdout.contains(cut), "a key was shown: {}", ran.stderr);
    }
    // Who has only the key itself can revoke it by that.
    terminal.run(&["keys", "revoke", &spare]).await?;
    terminal.set_key(KEY);
    assert_eq!(terminal.run(&["namespaces", "create", "acme"]).await?.code, Some(1));
    assert_eq!(terminal.run(&["namespaces", "show", "nowhere"]).await?.code, Some(1));
    assert_eq!(terminal.run(&["namespaces", "create", "Not A Name"]).await?.code, Some(1));

    // An id has eight characters.
    let names =
        [(&admin, "ADMIN-"), (&spare, "SPARE-"), (&ci, "FIRST-"), (&rotated, "OTHER-"), (&token, "TOKEN-")];
    let keys = |text: String, (key, name): (&String, &str)| text.replace(key, &format!("{name}KEY"));
    let transcript = names.into_iter().fold(terminal.transcript().to_owned(), keys);
    let transcript = transcript.replace(cut, "PART-OF-A-KEY");
    let ids = |text: String, (key, name): (&String, &str)| text.replace(&id(key), &format!("{name}ID"));
    let transcript = names.into_iter().fold(transcript, ids);
    assert!(!transcript.contains(KEY), "the deployment's own key is nobody's business");
    compare("keys", &transcript)?;
    Ok(())
}

#[tokio::test]
async fn with_json_these_commands_give_what_the_api_gives() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;
    let made = terminal.quietly(&["namespaces", "create", "acme", "--json", "--quiet"]).await?;
    assert_eq!(made.stderr, "");
    let made: Value = serde_json::from_str(&made.stdout)?;
    terminal.set_key(made["admin"]["key"].as_str().context("it is shown")?);
    let key = terminal.quietly(&["keys", "create", "ci", "--scope", "read", "--json"]).await?;
    assert!(key.stderr.contains("only once"), "{}", key.stderr);
    let key: Value = serde_json::from_str(&key.stdout)?;
    assert_eq!((&key["scopes"], &key["environment"]), (&serde_json::json!(["read"]), &Value::from("live")));
    let id = key["id"].as_str().context("it has an id")?.to_owned();
    for (arguments, field) in [
        (&["keys", "list"][..], "keys"),
        (&["keys", "rotate", &id], "key"),
        (&["keys", "revoke", &id], "revoked_at"),
        (&["namespaces", "show"], "limits"),
        (&["settings", "show"], "runs"),
        (&["settings", "set", "--payload-bytes-max", "1000"], "limits"),
        (&["audit", "--limit", "2"], "records"),
        (&["session", "open"], "token"),
    ] {
        let ran = terminal.quietly(&[arguments, &["--json"]].concat()).await?;
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        let value: Value = serde_json::from_str(&ran.stdout)?;
        assert!(value.get(field).is_some(), "{arguments:?}: {value}");
        if field == "records" {
            assert_eq!(value["records"].as_array().map(Vec::len), Some(2));
        }
    }
    let arguments = ["keys", "create", "trial", "--scope", "read", "--environment", "test", "--quiet"];
    let trial = secret(&terminal.quietly(&arguments).await?)?;
    let rotated = secret(&terminal.quietly(&["keys", "rotate", &trial, "--quiet"]).await?)?;
    assert!(trial.starts_with("sw_test_acme_") && rotated.starts_with("sw_test_acme_"), "{trial}, {rotated}");
    let ran = terminal.quietly(&["namespaces", "list", "--json"]).await?;
    let error: Value = serde_json::from_str(ran.stderr.trim())?;
    assert_eq!((ran.code, &error["error"]["code"]), (Some(1), &Value::from("forbidden")));
    Ok(())
}
