# The recipes that people and CI use. `just` lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Lists the recipes.
default:
    @just --list --unsorted

# Installs what a fresh Debian 12 machine (or any with rustup and npm) needs. Safe to run again.
setup:
    scripts/setup

# Builds the release bundles: the quickstart (engine and app in one), and the engine alone.
build:
    scripts/build-worker examples/quickstart target/bundles/quickstart --release
    scripts/build-worker crates/engine target/bundles/engine-release --release

# The same bundles, built so that a panic in a workflow is caught: only its own run notices.
build-unwind:
    scripts/build-worker examples/quickstart target/bundles/unwind/quickstart --release --panic-unwind
    scripts/build-worker crates/engine target/bundles/unwind/engine-release --release --panic-unwind

# Runs the quickstart on workerd at http://127.0.0.1:8787.
dev:
    scripts/dev

# Checks everything that needs no workerd: format, lints, dependencies, all native tests.
verify: fmt-check lint deny test

# Formats the code.
fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

# Licences and sources of all dependencies.
deny:
    source scripts/env.sh && cargo deny --locked check bans licenses sources

# Checks the dependencies for known vulnerabilities, if the advisory database can be fetched.
audit:
    scripts/audit

test:
    source scripts/env.sh && cargo nextest run --workspace --all-features --locked --exclude stepwell-workerd-tests -E 'not (package(stepwell-sim) & binary(explore))'
    cargo test --workspace --all-features --locked --doc --quiet

# Writes the API's description anew, from the protocol.
api:
    cargo run --quiet --locked -p stepwell-openapi > docs/openapi.json.new
    mv docs/openapi.json.new docs/openapi.json

# Checks the API's description: it is the committed one, has every route and code, and the real Worker answers as it says.
api-check:
    cargo test --quiet --locked -p stepwell-openapi
    source scripts/env.sh && cargo nextest run --locked -p stepwell-workerd-tests --test api --no-capture

# Builds the test Workers, quickly rather than small.
test-bundles:
    scripts/build-worker tests/workerd/probe target/bundles/probe --profile quick --no-opt
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick --no-opt
    scripts/build-worker tests/workerd/app target/bundles/test-app --profile quick --no-opt --no-default-features
    scripts/build-worker tests/workerd/app target/bundles/test-app-changed --profile quick --no-opt --no-default-features --features changed
    scripts/build-worker crates/engine target/bundles/engine --profile quick --no-opt
    scripts/build-worker examples/quickstart target/bundles/quickstart-app --profile quick --no-opt --no-default-features
    scripts/build-worker examples/orders target/bundles/orders --profile quick --no-opt

# The test Workers in which a panic is caught.
test-bundles-unwind:
    scripts/build-worker tests/workerd/app target/bundles/unwind/test-all-in-one --profile quick --no-opt --panic-unwind
    scripts/build-worker tests/workerd/app target/bundles/unwind/test-app --profile quick --no-opt --panic-unwind --no-default-features
    scripts/build-worker crates/engine target/bundles/unwind/engine --profile quick --no-opt --panic-unwind

# Tests on the real workerd: the platform's facts, the engine in both forms, the README's own commands.
workerd-test: test-bundles test-bundles-unwind
    cargo build --locked -p stepwell-cli
    source scripts/env.sh && cargo nextest run --locked -p stepwell-workerd-tests

# A tour of the command line on the real workerd: new, dev, start, watch, and what one does with runs.
demo:
    scripts/demo

# Kills workerd KILLS times while RUNS runs go through, in both forms; more arguments: `--help`.
kill KILLS RUNS *ARGUMENTS: test-bundles
    cargo run --quiet --locked -p stepwell-workerd-tests --bin kill -- {{KILLS}} {{RUNS}} {{ARGUMENTS}}

# Kills workerd KILLS times while PARENTS parents invoke children on three levels, in both forms; more arguments: `--help`.
kill-children KILLS PARENTS *ARGUMENTS: test-bundles
    cargo run --quiet --locked -p stepwell-workerd-tests --bin kill_children -- {{KILLS}} {{PARENTS}} {{ARGUMENTS}}

# Asks every route as every kind of caller, and lets one namespace do what it can to another; `--help`.
access-matrix *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick --no-opt
    cargo run --quiet --locked -p stepwell-workerd-tests --bin access_matrix -- {{ARGUMENTS}}

# Sends broken, strange and too large input to the real Worker, and checks what becomes of it; `--help`.
bad-input *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick --no-opt
    cargo run --quiet --locked -p stepwell-workerd-tests --bin bad_input -- {{ARGUMENTS}}

# Starts runs by their keys, STARTS times in all, while the pool grows; more arguments: `--help`.
growth STARTS *ARGUMENTS: test-bundles
    cargo run --quiet --locked -p stepwell-workerd-tests --bin growth -- {{STARTS}} {{ARGUMENTS}}

# Follows runs: how soon streams show a step, and what kills and reconnects do to them; arguments: `--help`.
streams *ARGUMENTS: test-bundles
    cargo run --quiet --locked -p stepwell-workerd-tests --bin streams -- {{ARGUMENTS}}

# Runs Stepwell at a size on workerd, and prints what that took: `live RUNS`, `sleeping RUNS`, `long STEPS`, `bulk RUNS`, `listed RUNS`, `hung`.
size WHAT *ARGUMENTS: test-bundles
    cargo run --quiet --locked -p stepwell-workerd-tests --bin size -- {{WHAT}} {{ARGUMENTS}}

# Lets `stepwell plan` look at RUNS live runs of which a change diverges three, and checks that it names those.
plan RUNS: test-bundles
    cargo build --locked -p stepwell-cli
    source scripts/env.sh && STEPWELL_PLAN_RUNS={{RUNS}} cargo nextest run --locked -p stepwell-workerd-tests --test plan --no-capture

# Runs the findings of hostile reviews on workerd, a line for each with its figure; `--full` at their full sizes.
hardening *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick --no-opt
    cargo run --quiet --locked -p stepwell-workerd-tests --bin hardening -- {{ARGUMENTS}}

# Runs SEEDS small worlds in which everything breaks. Half of the seeds are new for each change of the sources; `--first S` runs them from S on.
sim SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- run --seeds {{SEEDS}} --tree "$(scripts/source-hash)" {{ARGUMENTS}}

# Runs one world again and prints what happened in it; a world that breaks a rule is made smaller first.
sim-seed SEED:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- seed {{SEED}}

# Looks at every world of a small size, with up to FAULTS faults on one way; more arguments: `--help`.
explore FAULTS="1" *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- explore {{FAULTS}} {{ARGUMENTS}}

# Looks at every world of a small size with one fault, and for a counterexample to every planted bug that concerns them.
explore-check: explore
    source scripts/env.sh && cargo nextest run --locked --cargo-profile quick -p stepwell-sim --test explore

# Walks through a year of schedules minute by minute, in six time zones and through every change of their clocks.
schedules-year:
    source scripts/env.sh && cargo nextest run --locked --all-features --cargo-profile quick --run-ignored all -p stepwell-core --lib schedule::tests::year

# Lets libFuzzer try a TARGET of tests/fuzz that often, from its corpus on; more arguments are libFuzzer's own.
fuzz TARGET EXECUTIONS *ARGUMENTS:
    scripts/fuzz {{TARGET}} {{EXECUTIONS}} {{ARGUMENTS}}

# Lets it try all targets, one after the other.
fuzz-all EXECUTIONS *ARGUMENTS:
    scripts/fuzz --all {{EXECUTIONS}} {{ARGUMENTS}}

# Builds the bench's release bundles: engine and app in one, the app alone, the engine alone.
bench-bundles:
    scripts/build-worker bench/app target/bundles/bench-all-in-one --release
    scripts/build-worker bench/app target/bundles/bench-app --release --no-default-features
    scripts/build-worker crates/engine target/bundles/bench-engine --release

# Stepwell beside hand-written Durable Objects on workerd: speed, rows, bundle size; arguments: `--help`.
bench *ARGUMENTS: bench-bundles
    cargo run --quiet --locked --profile quick -p stepwell-bench -- speed {{ARGUMENTS}}

# Builds the bench's bundles as they were at COMMIT, to be measured beside today's as `stepwell-before`.
bench-before COMMIT:
    scripts/bench-before {{COMMIT}}

# The CPU time of a start, a commit, a run of ten steps and a wake-up; arguments: `--help`.
bench-cpu *ARGUMENTS: bench-bundles
    cargo run --quiet --locked --profile quick -p stepwell-bench -- cpu {{ARGUMENTS}}

# Runs everything at the sizes that the project states. It takes hours; CI runs the same at small sizes.
soak:
    just sim 1000000
    just kill 100 2000
    just kill-children 100 1000
    just plan 500
    just hardening --full
    just bench
