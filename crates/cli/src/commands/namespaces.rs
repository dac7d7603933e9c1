//! `stepwell namespaces`: the namespaces of a deployment, and what each may use. Takes the deployment's own key.

use std::{
    io::{BufRead as _, stdin},
    thread,
    time::Duration,
};

use clap::{Args, Subcommand};
use stepwell_protocol::access::{
    CreatedNamespace, DeletedNamespace, DeletionView, Limits, NamespaceDetails, NamespaceList, NewNamespace,
    Settings,
};

use super::{
    keys::{Quietly, nothing_to_set},
    settings::{self, Maybe},
};
use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Failure, Result},
    table, words,
};

/// What can be done with namespaces.
#[derive(Debug, Subcommand)]
pub enum Namespaces {
    /// List the namespaces by name.
    List,
    /// Create a namespace. Its first key is shown only once.
    Create(Create),
    /// Show the settings and limits of a namespace.
    Show(Show),
    /// Set limits of a namespace. Limits that you do not name stay as they are.
    Set(Set),
    /// Delete a namespace with all its runs, keys and settings.
    Delete(Delete),
}

/// How often `delete --wait` looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What making a namespace takes.
#[derive(Debug, Args)]
pub struct Create {
    /// Its name: up to 32 lower-case letters, digits and hyphens.
    name: String,
    #[command(flatten)]
    limits: Named,
    #[command(flatten)]
    quietly: Quietly,
}

/// What showing a namespace takes.
#[derive(Debug, Args)]
pub struct Show {
    /// Its name; the default is the key's namespace.
    name: Option<String>,
}

/// What setting limits takes.
#[derive(Debug, Args)]
pub struct Set {
    /// Its name.
    name: String,
    #[command(flatten)]
    limits: Named,
}

/// What deleting a namespace takes.
#[derive(Debug, Args)]
pub struct Delete {
    /// Its name.
    name: String,
    /// Do not ask for the name again.
    #[arg(long)]
    yes: bool,
    /// Wait until nothing is left of it.
    #[arg(long)]
    wait: bool,
}

/// Limits, as far as they are named.
#[derive(Clone, Copy, Debug, Args)]
struct Named {
    /// Requests per second, with bursts of two seconds; none removes the limit.
    #[arg(long, value_name = "N")]
    requests_per_second: Option<Maybe<u32>>,
    /// Bytes of inputs and signals per second, with bursts of two seconds; none removes the limit.
    #[arg(long, value_name = "N")]
    payload_bytes_per_second: Option<Maybe<u32>>,
    /// Runs that have not ended; none removes the limit.
    #[arg(long, value_name = "N")]
    live_runs: Option<Maybe<u32>>,
    /// The largest input or signal in bytes, regardless of the namespace's settings; none removes the limit.
    #[arg(long, value_name = "N")]
    payload_bytes_max: Option<Maybe<u32>>,
}

impl Named {
    fn is_empty(self) -> bool {
        let Self { requests_per_second, payload_bytes_per_second, live_runs, payload_bytes_max } = self;
        [requests_per_second, payload_bytes_per_second, live_runs, payload_bytes_max]
            .iter()
            .all(Option::is_none)
    }

    /// What holds once these are set.
    fn over(self, before: Limits) -> Limits {
        let or = |named: Option<Maybe<u32>>, before| named.map_or(before, |Maybe(value)| value);
        Limits {
            requests_per_second: or(self.requests_per_second, before.requests_per_second),
            payload_bytes_per_second: or(self.payload_bytes_per_second, before.payload_bytes_per_second),
            live_runs: or(self.live_runs, before.live_runs),
            payload_bytes_max: or(self.payload_bytes_max, before.payload_bytes_max),
        }
    }
}

impl Namespaces {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List => list(global),
            Self::Create(create) => create.run(global),
            Self::Show(show) => show.run(global),
            Self::Set(set) => set.run(global),
            Self::Delete(delete) => delete.run(global),
        }
    }
}

fn list(global: &Global) -> Result {
    let answer: Answer<NamespaceList> = global.client()?.get(&["namespaces"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    if answer.value.namespaces.is_empty() {
        anstream::eprintln!("There are no namespaces except 'default'.");
        anstream::eprintln!("next: stepwell namespaces create NAME");
    }
    let row = |one: &stepwell_protocol::access::NamespaceView| {
        let state = if one.deleting { ", being deleted" } else { "" };
        vec![words::plain(&one.name), format!("made {}{state}", words::date(one.created_at))]
    };
    let rows: Vec<_> = answer.value.namespaces.iter().map(row).collect();
    table::print(&rows);
    Ok(())
}

impl Create {
    fn run(self, global: &Global) -> Result {
        let new = NewNamespace { name: self.name, limits: self.limits.over(Limits::default()) };
        let body = serde_json::to_string(&new).expect("it holds only what JSON can say");
        let doubt = Some(
            "It may have been created: check with `stepwell namespaces list`. \
             `stepwell keys create admin --scope admin --namespace NAME` creates another key for it.",
        );
        let ask = Ask { body: Some(body), doubt, ..Ask::default() };
        let answer: Answer<CreatedNamespace> = global.client()?.post(&["namespaces"], &ask)?;
        let CreatedNamespace { view, admin } = &answer.value;
        let about = format!(
            "{} is created. This is its first key, {} ({}), with the scope admin.",
            words::plain(&view.name),
            words::plain(&admin.view.id),
            words::plain(&admin.view.name)
        );
        self.quietly.show(global, &answer.text, &admin.key, &about);
        Ok(())
    }
}

impl Show {
    fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let Some(name) = &self.name else {
            settings::show(global, &client.get(&["settings"], &Ask::default())?);
            return Ok(());
        };
        let Answer { text, value } = client.get(&["namespaces", name], &Ask::default())?;
        let NamespaceDetails { settings, deleting } = value;
        if let Some(deleting) = deleting.filter(|_| !global.json) {
            anstream::println!("{} is being deleted{}", words::plain(name), left(&deleting));
        }
        settings::show(global, &Answer { text, value: settings });
        Ok(())
    }
}

impl Delete {
    fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        if !self.yes {
            self.confirm()?;
        }
        let name = words::plain(&self.name);
        let answer: Answer<DeletedNamespace> = client.delete(&["namespaces", &self.name], &Ask::default())?;
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            anstream::println!("{name} is being deleted{}", left(&answer.value.deleting));
        }
        if !self.wait {
            if !global.json {
                anstream::eprintln!("next: stepwell namespaces show {name}");
            }
            return Ok(());
        }
        loop {
            thread::sleep(LOOK_AGAIN);
            let shown: Result<Answer<NamespaceDetails>> =
                client.get(&["namespaces", &self.name], &Ask::default());
            match shown {
                Ok(Answer { value: NamespaceDetails { deleting: Some(_), .. }, .. }) => {}
                // Somebody has made it again.
                Ok(_) => break,
                Err(failure) if failure.code.as_deref() == Some("namespace_not_found") => break,
                Err(failure) => return Err(failure),
            }
        }
        if !global.json {
            anstream::println!("nothing is left of {name}");
        }
        Ok(())
    }

    /// Nobody gets back what was deleted: its name has to be typed again.
    fn confirm(&self) -> Result {
        let name = words::plain(&self.name);
        anstream::eprintln!(
            "This deletes all runs, keys and settings of {name}, for good. Runs that are under way stop where they are."
        );
        anstream::eprint!("Type the name again: ");
        let mut typed = String::new();
        let read = stdin().lock().read_line(&mut typed);
        read.map_err(|error| Failure::local(format!("the name could not be read: {error}")))?;
        if typed.trim() == self.name {
            return Ok(());
        }
        Err(Failure::usage("nothing was deleted: that is not the name").next("--yes deletes without asking."))
    }
}

/// What is left to be deleted.
fn left(deletion: &DeletionView) -> String {
    match (deletion.cells_left, deletion.stations_left) {
        (Some(cells), Some(0)) => format!(": {cells} cells left"),
        (Some(cells), Some(stations)) => format!(": {cells} cells and {stations} other objects left"),
        (_, None) | (None, _) => String::new(),
    }
}

impl Set {
    fn run(self, global: &Global) -> Result {
        if self.limits.is_empty() {
            return Err(nothing_to_set());
        }
        let client = global.client()?;
        let before: Answer<Settings> = client.get(&["namespaces", &self.name], &Ask::default())?;
        let limits = self.limits.over(before.value.limits);
        let body = serde_json::to_string(&limits).expect("it holds only what JSON can say");
        let ask = Ask { body: Some(body), doubt: Some(settings::DOUBT), ..Ask::default() };
        settings::show(global, &client.put(&["namespaces", &self.name, "limits"], &ask)?);
        Ok(())
    }
}
