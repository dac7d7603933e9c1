//! `stepwell-dashboard-bindings WASM OUT`: makes `OUT/dashboard.js` and `OUT/dashboard_bg.wasm` of a compiled dashboard.

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (wasm, out) = (arguments.next(), arguments.next());
    let (wasm, out) = wasm.zip(out).context("usage: stepwell-dashboard-bindings WASM OUT")?;
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(wasm)
        .out_name("dashboard")
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(out)
}
