//! Takes the blanks out of the API's description: people read the one in `docs`, every Worker carries this one.

use std::{env, fs, path::Path};

/// A link to `docs/openapi.json`, which a released crate has as a file.
const DESCRIPTION: &str = "openapi.json";

fn main() {
    println!("cargo::rerun-if-changed={DESCRIPTION}");
    let pretty = fs::read_to_string(DESCRIPTION).expect("the description is part of the crate");
    let out = env::var_os("OUT_DIR").expect("cargo says where to write");
    fs::write(Path::new(&out).join("openapi.json"), without_blanks(&pretty)).expect("there is room for it");
}

/// JSON without the blanks between its parts.
fn without_blanks(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    json.chars()
        .filter(|&c| {
            let is_kept = is_text || !c.is_ascii_whitespace();
            if is_text && !is_escaped && c == '\\' {
                is_escaped = true;
            } else {
                is_text ^= c == '"' && !is_escaped;
                is_escaped = false;
            }
            is_kept
        })
        .collect()
}
