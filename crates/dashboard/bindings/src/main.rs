//! `stepwell-dashboard-bindings WASM OUT`: makes `OUT/dashboard.js` and `OUT/dashboard_bg.wasm` of a compiled dashboard.

#[path = "../../../cli/src/building/functions.rs"]
mod functions;

use std::{fs, path::Path};

use anyhow::{Context as _, Result, anyhow};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (wasm, out) = (arguments.next(), arguments.next());
    let (wasm, out) = wasm.zip(out).context("usage: stepwell-dashboard-bindings WASM OUT")?;
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(wasm)
        .out_name("dashboard")
        .web(true)?
        .typescript(false)
        .remove_producers_section(true)
        .generate(&out)?;
    // Functions that are alike stand side by side, which compresses better. Nobody reads their names after that.
    let path = Path::new(&out).join("dashboard_bg.wasm");
    let sorted = functions::in_order(&fs::read(&path)?, false).map_err(|error| anyhow!(error))?;
    fs::write(&path, without_names(&sorted).context("the module has no sections")?)?;
    Ok(())
}

/// A module without the section that has names: its sections stand one after the other, each with its kind and its length.
fn without_names(module: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = module.split_at_checked(8)?;
    let mut kept = head.to_vec();
    while let Some((&kind, after)) = rest.split_first() {
        let (length, inner) = number(after)?;
        let (section, next) = inner.split_at_checked(length)?;
        let is_names = kind == 0 && number(section).is_some_and(|(_, name)| name.starts_with(b"name"));
        if !is_names {
            kept.extend_from_slice(rest.get(..rest.len() - next.len())?);
        }
        rest = next;
    }
    Some(kept)
}

/// A number as modules write it, and what stands after it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}
