#[stepwell::main]
fn app(name: String) -> stepwell::App {
    stepwell::App::new()
}

fn main() {}
