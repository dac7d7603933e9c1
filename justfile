# The recipes that people and CI use. `just` lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Lists the recipes.
default:
    @just --list --unsorted

# Installs what a fresh Debian 12 machine (or any with rustup and npm) needs. Safe to run again.
setup:
    scripts/setup

# Builds the release bundles: the quickstart (engine and app in one), and the engine alone. Fails if one is too large.
build:
    scripts/build-worker examples/quickstart target/bundles/quickstart
    scripts/build-worker crates/engine-worker target/bundles/engine-release
    scripts/bundle-sizes quickstart engine-release

# The same bundles, built so that a panic in a workflow is caught: only its own run notices.
build-unwind:
    scripts/build-worker examples/quickstart target/bundles/unwind/quickstart --panic-unwind
    scripts/build-worker crates/engine-worker target/bundles/unwind/engine-release --panic-unwind

# Runs the quickstart on workerd at http://127.0.0.1:8787.
dev:
    scripts/dev

# Checks everything that needs no workerd: format, lints, dependencies, all native tests.
verify: fmt-check lint deny test sim-test

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
    source scripts/env.sh && cargo deny --manifest-path crates/dashboard/Cargo.toml --locked check --hide-inclusion-graph bans licenses sources

# Checks the dependencies for known vulnerabilities, if the advisory database can be fetched.
audit:
    scripts/audit

# All native tests but the simulator's (`sim-test`). Tests are always built with all packages and features: with others, cargo compiles most dependencies again.
test:
    source scripts/env.sh && cargo nextest run --workspace --all-features --locked -E 'not package(stepwell-workerd-tests) and not package(stepwell-sim)'
    cargo test --workspace --all-features --locked --doc --quiet

# Tests the dashboard in Chromium on the real workerd, a line for each test with its figure, in less than 30 minutes; words select tests by name, `--quick` leaves out those at a size.
dashboard-test *WORDS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/build-dashboard
    [[ " {{WORDS}} " == *" --quick "* ]] || npm ci --prefix tests/dashboard/lighthouse --ignore-scripts --no-audit --no-fund --silent
    node_modules/.bin/node tests/dashboard/run.mjs {{WORDS}}

# Takes screenshots of the dashboard, in both themes and four sizes; `--docs` writes those of the documentation.
dashboard-look *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/build-dashboard
    node_modules/.bin/node tests/dashboard/look.mjs {{ARGUMENTS}}

# Serves the dashboard with data on every page, to look at and to click through, until Ctrl-C.
demo-dashboard:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/build-dashboard
    node_modules/.bin/node tests/dashboard/serve.mjs

# Checks the dashboard's own workspace: format, lints.
dashboard-lint:
    scripts/lint-dashboard

# Builds the documentation's site into target/site, and checks its links, code blocks and words.
docs: words
    scripts/docs

# Takes screenshots of five pages of the site, in both themes and two sizes.
docs-look *ARGUMENTS: docs
    node_modules/.bin/node tests/docs/look.mjs {{ARGUMENTS}}

# Checks the words of README, docs, help texts and API descriptions, and prints each page's reading grade.
words:
    cargo test --quiet --locked -p stepwell-house --test pages --test words -- --nocapture

# Writes the API's description anew, from the protocol.
api:
    cargo run --quiet --locked -p stepwell-openapi > docs/openapi.json.new
    mv docs/openapi.json.new docs/openapi.json

# Checks the API's description: it is the committed one, has every route and code, and the real Worker answers as it says.
api-check:
    source scripts/env.sh && cargo nextest run --workspace --all-features --locked --no-capture -E 'package(stepwell-openapi) or (package(stepwell-workerd-tests) and test(/^api::/))'

# Builds the test Workers, quickly rather than small.
test-bundles:
    scripts/build-worker tests/workerd/probe target/bundles/probe --profile quick
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/build-worker tests/workerd/app target/bundles/test-app --profile quick -- --no-default-features
    scripts/build-worker tests/workerd/app target/bundles/test-app-changed --profile quick -- --no-default-features --features changed
    scripts/build-worker crates/engine-worker target/bundles/engine --profile quick
    scripts/build-worker examples/quickstart target/bundles/quickstart-app --profile quick -- --no-default-features
    scripts/build-worker examples/orders target/bundles/orders --profile quick

# The command line, and the agent as people build it: by `stepwell build`.
test-bundle-agent:
    source scripts/env.sh && cli && cd examples/agent && wasm_env "$STEPWELL_BIN" build --profile quick --out "$root/target/bundles/agent"

# The test Workers in which a panic is caught.
test-bundles-unwind:
    scripts/build-worker tests/workerd/app target/bundles/unwind/test-all-in-one --profile quick --panic-unwind
    scripts/build-worker tests/workerd/app target/bundles/unwind/test-app --profile quick --panic-unwind -- --no-default-features
    scripts/build-worker crates/engine-worker target/bundles/unwind/engine --profile quick --panic-unwind

# Tests on the real workerd: the platform's facts, the engine in both forms, the commands of docs/getting-started.md. More at once than there may be cores: most of them wait.
workerd-test: test-bundles test-bundles-unwind test-bundle-agent
    source scripts/env.sh && cargo nextest run --workspace --all-features --locked --test-threads 4 -E 'package(stepwell-workerd-tests)'

# A tour of the command line on the real workerd: new, dev, start, watch, and what one does with runs.
demo:
    scripts/demo

# From nothing to a finished first run, as a new user does it: timed, in an empty home; `--warm` keeps caches, `--busy` has no limit.
five-minutes *ARGUMENTS:
    scripts/five-minutes {{ARGUMENTS}}

# Kills workerd KILLS times while RUNS runs go through, in both forms; more arguments: `--help`.
kill KILLS RUNS *ARGUMENTS: test-bundles
    scripts/on-workerd kill {{KILLS}} {{RUNS}} {{ARGUMENTS}}

# Kills workerd KILLS times while PARENTS parents invoke children on three levels, in both forms; more arguments: `--help`.
kill-children KILLS PARENTS *ARGUMENTS: test-bundles
    scripts/on-workerd kill_children {{KILLS}} {{PARENTS}} {{ARGUMENTS}}

# Kills workerd KILLS times while EVENTS events start, wake and cancel runs, in both forms; more arguments: `--help`.
kill-events KILLS EVENTS *ARGUMENTS: test-bundles
    scripts/on-workerd kill_events {{KILLS}} {{EVENTS}} {{ARGUMENTS}}

# Kills workerd KILLS times while RUNS runs of fifty customers go through limits and JOBS jobs through queues, in both forms; more arguments: `--help`.
kill-lanes KILLS RUNS JOBS *ARGUMENTS: test-bundles
    scripts/on-workerd kill_lanes {{KILLS}} {{RUNS}} {{JOBS}} {{ARGUMENTS}}

# Asks every route as every kind of caller, and lets one namespace do what it can to another; `--help`.
access-matrix *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/on-workerd access_matrix {{ARGUMENTS}}

# Shows how soon a customer begins behind another one's backlog, and how much a namespace beyond its limit slows another; `--quick`, `--help`.
fairness *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/on-workerd fairness {{ARGUMENTS}}

# Tries addresses that must not be called on the real Worker, with a canary that must never be hit.
ssrf:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/on-workerd ssrf

# Sends broken, strange and too large input to the real Worker, and checks what becomes of it; `--help`.
bad-input *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/on-workerd bad_input {{ARGUMENTS}}

# Checks webhooks: the vectors of each scheme and what is wrong with deliveries, then each scheme on the real Worker, with kills.
webhooks:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    source scripts/env.sh && cli && cargo nextest run --workspace --all-features --locked -E 'package(stepwell-protocol) & test(/^(webhook|seal)::/) or package(stepwell-core) & test(/^topic::tests::hooks::/) or package(stepwell-workerd-tests) & test(/^webhooks::/)'

# Starts runs by their keys, STARTS times in all, while the pool grows; more arguments: `--help`.
growth STARTS *ARGUMENTS: test-bundles
    scripts/on-workerd growth {{STARTS}} {{ARGUMENTS}}

# Follows runs: how soon streams show a step, and what kills and reconnects do to them; arguments: `--help`.
streams *ARGUMENTS: test-bundles
    scripts/on-workerd streams {{ARGUMENTS}}

# Runs Stepwell at a size on workerd, and prints what that took: `live RUNS`, `sleeping RUNS`, `long STEPS`, `bulk RUNS`, `listed RUNS`, `jobs JOBS`, `lane RUNS`, `hung`.
size WHAT *ARGUMENTS: test-bundles
    scripts/on-workerd size {{WHAT}} {{ARGUMENTS}}

# Lets `stepwell plan` look at RUNS live runs of which a change diverges three, and checks that it names those.
plan RUNS: test-bundles
    source scripts/env.sh && cli && STEPWELL_PLAN_RUNS={{RUNS}} cargo nextest run --locked -p stepwell-workerd-tests -E 'test(/^plan::/)' --no-capture

# Runs the findings of hostile reviews on workerd, a line for each with its figure; `--full` at their full sizes.
hardening *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    scripts/on-workerd hardening {{ARGUMENTS}}

# Runs SEEDS small worlds in which everything breaks. Half of the seeds are new for each change of the sources; `--first S` runs them from S on.
sim SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- run --seeds {{SEEDS}} --tree "$(scripts/source-hash)" {{ARGUMENTS}}

# Runs SEEDS small worlds of schedules, in which everything breaks, and every bug that is planted there.
sim-schedules SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- schedules --seeds {{SEEDS}} {{ARGUMENTS}}

# Runs SEEDS small worlds of lanes, in which everything breaks, and every bug that is planted there.
sim-lanes SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- lanes --seeds {{SEEDS}} {{ARGUMENTS}}

# Runs SEEDS small worlds of queues, in which everything breaks, and every bug that is planted there.
sim-queues SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- queues --seeds {{SEEDS}} {{ARGUMENTS}}

# Runs SEEDS small worlds of topics, in which everything breaks, and every bug that is planted there; `1 --first S --trace` prints what happens in one.
sim-topics SEEDS *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- topics --seeds {{SEEDS}} {{ARGUMENTS}}

# Runs one world again and prints what happened in it; a world that breaks a rule is made smaller first.
sim-seed SEED:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- seed {{SEED}}

# Looks at every world of a small size, with up to FAULTS faults on one way; more arguments: `--help`.
explore FAULTS="1" *ARGUMENTS:
    cargo run --quiet --locked --profile quick -p stepwell-sim -- explore {{FAULTS}} {{ARGUMENTS}}

# The simulator's own tests, optimized: every planted bug is noticed in worlds, and has a counterexample where it concerns small ones.
sim-test:
    source scripts/env.sh && cargo nextest run --locked --cargo-profile quick -p stepwell-sim

# Walks through a year of schedules minute by minute, in six time zones and through every change of their clocks.
schedules-year:
    source scripts/env.sh && cargo nextest run --locked --all-features --cargo-profile quick --run-ignored all -p stepwell-core --lib schedule::tests::year

# Evaluates COUNT random expressions over random values: none panics, and each keeps its bounds.
expressions COUNT:
    source scripts/env.sh && STEPWELL_EXPRESSIONS={{COUNT}} cargo nextest run --locked --all-features --cargo-profile quick --no-capture -p stepwell-core --lib expression::random

# Lets libFuzzer try a TARGET of tests/fuzz that often, from its corpus on; more arguments are libFuzzer's own.
fuzz TARGET EXECUTIONS *ARGUMENTS:
    scripts/fuzz {{TARGET}} {{EXECUTIONS}} {{ARGUMENTS}}

# Lets it try all targets, one after the other.
fuzz-all EXECUTIONS *ARGUMENTS:
    scripts/fuzz --all {{EXECUTIONS}} {{ARGUMENTS}}

# Schedules at a size on workerd: lateness, many at once, many in one object; `--small` takes less than 40 seconds.
bench-schedules *ARGUMENTS:
    scripts/build-worker tests/workerd/app target/bundles/test-all-in-one --profile quick
    cargo run --quiet --locked --profile quick -p stepwell-workerd-tests --bin bench_schedules -- {{ARGUMENTS}}

# Events at several rates on workerd: how soon their runs start, and how long many waits take to get theirs; arguments: `--help`.
bench-events *ARGUMENTS: test-bundles
    cargo run --quiet --locked --profile quick -p stepwell-workerd-tests --bin bench_events -- {{ARGUMENTS}}

# Builds the bench's release bundles: engine and app in one, the app alone, the engine alone.
bench-bundles:
    scripts/build-worker bench/app target/bundles/bench-all-in-one
    scripts/build-worker bench/app target/bundles/bench-app -- --no-default-features
    scripts/build-worker crates/engine-worker target/bundles/bench-engine

# Stepwell beside hand-written Durable Objects on workerd: speed, rows, bundle size, cold start; arguments: `--help`.
bench *ARGUMENTS: bench-bundles
    cargo run --quiet --locked --profile quick -p stepwell-bench -- speed {{ARGUMENTS}}

# Jobs of queues beside hand-written Durable Objects, graphile-worker and pg-boss: speed, waiting times, rows; `--quick`, `--help`.
bench-jobs *ARGUMENTS:
    scripts/build-worker bench/app target/bundles/bench-all-in-one
    npm ci --prefix bench/peers --ignore-scripts --no-audit --no-fund --silent
    cargo run --quiet --locked --profile quick -p stepwell-bench -- jobs {{ARGUMENTS}}

# Builds the bench's bundles as they were at COMMIT, to be measured beside today's as `stepwell-before`.
bench-before COMMIT:
    scripts/bench-before {{COMMIT}}

# The CPU time of a start, a commit, a run of ten steps and a wake-up; arguments: `--help`.
bench-cpu *ARGUMENTS: bench-bundles
    cargo run --quiet --locked --profile quick -p stepwell-bench -- cpu {{ARGUMENTS}}

# Runs everything at the sizes that the project states. It takes hours; CI runs the same at small sizes.
soak:
    just sim 1000000
    just sim-schedules 10000
    just sim-topics 10000
    just sim-lanes 10000
    just sim-queues 10000
    just kill 100 2000
    just kill-children 100 1000
    just kill-events 100 5000
    just kill-lanes 100 2000 5000
    just plan 500
    just hardening --full
    just bench
    just bench-events --waits 10000
    just bench-schedules
    just bench-jobs
    just size jobs 1000000
    just size lane 10000
    just size lane 100000 --stay
    just fairness
    just dashboard-test
    just expressions 10000000
    just schedules-year
    just five-minutes
