//! Prints the description, as it is committed in `docs/openapi.json`.

fn main() {
    print!("{}", stepwell_openapi::text());
}
