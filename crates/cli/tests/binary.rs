//! The binary itself, as far as it needs no deployment.

use std::{
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

fn stepwell(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(arguments)
        .env_remove("STEPWELL_ADDRESS")
        .env_remove("STEPWELL_KEY")
        .env("STEPWELL_CONFIG", "/dev/null")
        .output()
        .expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_shell_gets_completions_for_every_command_that_people_see() {
    let help = text(&stepwell(&["--help"]).stdout);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 15 && commands.contains(&"watch"), "{help}");
    assert!(!commands.contains(&"guard"), "people see what is not for them");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let written = text(&stepwell(&["completions", shell]).stdout);
        for command in commands.iter().chain(&["rotate", "overlap"]) {
            assert!(written.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn colours_are_only_for_terminals_unless_somebody_wants_them() {
    let colours = |arguments: &[&str]| text(&stepwell(arguments).stderr).contains('\u{1b}');
    let list = ["--address", "http://127.0.0.1:1", "list"];
    assert!(!colours(&list));
    assert!(colours(&[&["--color", "always"][..], &list].concat()));
}

#[test]
fn usage_and_an_address_that_nobody_listens_on_have_their_own_exit_codes() {
    let code = |arguments: &[&str]| stepwell(arguments).status.code();
    assert_eq!(code(&["--version"]), Some(0));
    assert_eq!(code(&["nonsense"]), Some(2));
    assert_eq!(code(&["--address", "http://127.0.0.1:1", "list"]), Some(3));
}

#[test]
fn a_command_line_that_makes_no_sense_is_quoted_without_the_keys_in_it() {
    let key = "sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12";
    for arguments in [&["list", key][..], &["keys", "revoke", key, key], &["--color", key, "list"], &[key]] {
        let output = stepwell(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("sw_live_acme_00jmmvwm…") && !said.contains(key), "{said}");
    }
}

/// Waits for something that has to come true soon.
#[cfg(target_os = "linux")]
fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_guarded_ends_when_its_parent_is_killed() {
    use std::io::{BufRead as _, BufReader};

    let mut parent = Command::new("sh")
        .args(["-c", r#""$0" guard sleep 600 & echo $!; wait"#, env!("CARGO_BIN_EXE_stepwell")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut line = String::new();
    let output = parent.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it tells the number of the process");
    let process = format!("/proc/{}", line.trim());
    let name = || std::fs::read_to_string(format!("{process}/comm")).unwrap_or_default();
    eventually("it never became the other program", || name() == "sleep\n");
    parent.kill().expect("it runs");
    parent.wait().expect("it was killed");
    // Whoever inherits it may leave its entry for a moment.
    let state = || std::fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
    eventually("it has outlived its parent", || name() != "sleep\n" || state().contains(") Z "));
}
