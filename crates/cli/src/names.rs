//! Lists of names that come in pages: queues, topics, lanes.

use serde_json::{Value, json};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Failure, Result},
    words,
};

/// Prints all names that a route lists, or what is said if there are none.
pub fn list(global: &Global, route: &'static str, none: &str) -> Result {
    let client = global.client()?;
    let (mut names, mut after) = (Vec::new(), None::<String>);
    loop {
        let query = after.take().map(|after| ("after", after)).into_iter().collect();
        let page: Answer<Value> = client.get(&[route], &Ask { query, ..Ask::default() })?;
        let listed = page.value[route].as_array();
        let listed = listed.ok_or_else(|| Failure::local(format!("the answer has no list of {route}")))?;
        names.extend(listed.iter().filter_map(Value::as_str).map(str::to_owned));
        match page.value["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    if global.json {
        anstream::println!("{}", json!({ route: names }));
        return Ok(());
    }
    if names.is_empty() {
        anstream::eprintln!("{none}");
    }
    for name in names {
        anstream::println!("{}", words::plain(&name));
    }
    Ok(())
}
