//! What a manifest changes in a deployment: asks for it, and tells it.

use anstyle::{AnsiColor, Style};
use stepwell_protocol::manifest::{Item, ItemKind, Plan};

use crate::{
    client::{Answer, Ask, Client},
    failure::Result,
    words,
};

/// Lets a deployment read what its app declares, and says what that has changed.
pub fn sync(client: &Client) -> Result<Answer<Plan>> {
    let doubt = Some("Nobody knows whether it was done. Repeat it: that is safe.");
    client.post(&["sync"], &Ask { doubt, ..Ask::default() })
}

/// Asks a deployment what this manifest would change. Nothing is stored.
pub fn plan(client: &Client, manifest: &str) -> Result<Answer<Plan>> {
    let query = vec![("dry_run", "true".to_owned())];
    client.post(&["sync"], &Ask { query, body: Some(manifest.to_owned()), ..Ask::default() })
}

/// A line for each change.
pub fn lines(plan: &Plan) -> Vec<String> {
    let (green, yellow, red) =
        (AnsiColor::Green.on_default(), AnsiColor::Yellow.on_default(), AnsiColor::Red.on_default());
    let line = |style: Style, sign: &str, item: &Item, more: &str| {
        let name = words::plain(&item.name);
        format!("{style}{sign}{style:#} {} {name}{more}", item.kind.as_str())
    };
    let mut lines: Vec<_> = plan.added.iter().map(|item| line(green, "+", item, "")).collect();
    for changed in &plan.changed {
        let more = format!(": {}", words::plain(&changed.changes.join(", ")));
        lines.push(line(yellow, "~", &changed.item, &more));
    }
    let retired = plan.retired.iter();
    lines.extend(retired.map(|item| match item.kind {
        ItemKind::Workflow => line(red, "-", item, " is retired: it accepts no new runs"),
        ItemKind::Schedule => line(red, "-", item, " is retired: it does not tick any more"),
        ItemKind::Trigger => line(red, "-", item, " is retired: it starts no more runs"),
        ItemKind::Job => {
            line(red, "-", item, " is retired: its queue keeps its jobs until someone claims them")
        }
    }));
    lines.extend(plan.kept_paused.iter().map(|item| line(yellow, "=", item, " stays paused")));
    lines
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::manifest::{ChangedItem, Outcome};

    use super::*;

    #[test]
    fn each_change_has_a_line() {
        let changed =
            ChangedItem { item: Item::workflow("b"), changes: vec!["timeout_ms: none -> 1000".into()] };
        let trigger = Item { kind: ItemKind::Trigger, name: "order/charge".into() };
        let plan = Plan {
            outcome: Outcome::Applied,
            hash: "00".into(),
            version: None,
            added: vec![Item::workflow("a")],
            changed: vec![changed],
            retired: vec![Item::workflow("c"), Item::schedule("s"), trigger],
            kept_paused: vec![Item::workflow("b")],
        };
        let uncoloured = |line: &String| anstream::adapter::strip_str(line).to_string();
        let told: Vec<_> = lines(&plan).iter().map(uncoloured).collect();
        let expected = [
            "+ workflow a",
            "~ workflow b: timeout_ms: none -> 1000",
            "- workflow c is retired: it accepts no new runs",
            "- schedule s is retired: it does not tick any more",
            "- trigger order/charge is retired: it starts no more runs",
            "= workflow b stays paused",
        ];
        assert_eq!(told, expected);
    }
}
