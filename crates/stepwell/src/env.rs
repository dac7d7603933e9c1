//! Secrets, variables and bindings of the Worker that a step runs in.
//!
//! In a Worker they are what `wrangler.toml`, `wrangler secret put` and `.dev.vars` declare. In `cargo test` secrets
//! and variables are what the test supplies; bindings do not exist there, so a test mocks the steps that use them.
//!
//! Owns: how code gets at them. Does not own: what a binding does, which is the `worker` crate's.

use std::fmt;

use worker::{Ai, Bucket, D1Database, EnvBinding, Fetcher, Queue, kv::KvStore};

#[cfg(feature = "testing")]
pub(crate) use native::{Values, supply};

/// The environment of the Worker, for code that has no [`crate::Ctx`] at hand.
pub fn env() -> Env {
    Env(())
}

/// Secrets, variables and bindings: see [`crate::Ctx::env`].
///
/// Read them inside steps. A value that changes between two deployments would make a replay take another turn than
/// the first run did.
///
/// ```
/// use stepwell::{prelude::*, testing::Test};
///
/// #[workflow]
/// async fn sign(ctx: Ctx, text: String) -> Result<usize> {
///     ctx.step("sign", async || {
///         let key = ctx.env().secret("SIGNING_KEY")?;
///         Ok(text.len() + key.expose().len())
///     })
///     .await
/// }
///
/// let outcome = Test::new(App::new().workflow(sign)).secret("SIGNING_KEY", "k3y").run("sign", "hello");
/// assert_eq!(outcome.output::<usize>(), 8);
/// ```
#[derive(Clone, Copy)]
pub struct Env(());

impl Env {
    /// A secret. If it does not exist, the step fails without a retry.
    pub fn secret(&self, name: &str) -> Result<Secret, EnvError> {
        text("secret", name).map(Secret)
    }

    /// A variable. If it does not exist, the step fails without a retry.
    pub fn var(&self, name: &str) -> Result<String, EnvError> {
        text("variable", name)
    }

    /// A KV namespace.
    pub fn kv(&self, name: &str) -> Result<KvStore, EnvError> {
        bound("KV namespace", name, |env| env.kv(name))
    }

    /// An R2 bucket.
    pub fn r2(&self, name: &str) -> Result<Bucket, EnvError> {
        named("R2 bucket", name)
    }

    /// A D1 database.
    pub fn d1(&self, name: &str) -> Result<D1Database, EnvError> {
        named("D1 database", name)
    }

    /// Another Worker, by its service binding.
    pub fn service(&self, name: &str) -> Result<Fetcher, EnvError> {
        named("service binding", name)
    }

    /// Workers AI.
    pub fn ai(&self, name: &str) -> Result<Ai, EnvError> {
        named("AI binding", name)
    }

    /// A queue to send messages to.
    pub fn queue(&self, name: &str) -> Result<Queue, EnvError> {
        named("queue", name)
    }

    /// Any other binding that the `worker` crate has a type for.
    pub fn binding<T: EnvBinding>(&self, name: &str) -> Result<T, EnvError> {
        named("binding", name)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

fn named<T: EnvBinding>(kind: &'static str, name: &str) -> Result<T, EnvError> {
    bound(kind, name, |env| env.get_binding(name))
}

/// A secret's text. It can be neither printed nor recorded as a step's result by accident.
///
/// ```compile_fail
/// use stepwell::prelude::*;
///
/// #[workflow]
/// async fn leak(ctx: Ctx) -> Result<()> {
///     ctx.step("leak", async || Ok(ctx.env().secret("API_KEY")?)).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for a request's header or a signature.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why the environment does not give what a step asked for. A step that fails with it is not retried: a retry a second
/// later would not find it either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// There is no secret or variable with this name.
    #[error("there is no {kind} '{name}': {hint}")]
    Missing {
        /// What was asked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// How to declare it.
        hint: String,
    },
    /// There is a binding with this name, but of another kind.
    #[error("'{name}' is not a {kind} here: {reason}")]
    Unusable {
        /// What was asked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What the runtime says about it.
        reason: String,
    },
    /// Bindings exist in a Worker only, and this is a native test.
    #[error("the {kind} '{name}' works only in a Worker: {}", mock_hint(step.as_deref()))]
    NotInTests {
        /// What was asked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The step that asked for it.
        step: Option<String>,
    },
}

impl EnvError {
    /// Something that native code cannot have.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn not_in_tests(kind: &'static str, name: &str) -> Self {
        Self::NotInTests { kind, name: name.to_owned(), step: crate::panics::current_step() }
    }
}

fn mock_hint(step: Option<&str>) -> String {
    match step {
        Some(step) => format!("in this test, replace the step with `.mock(\"{step}\", |_| Ok(…))`"),
        None => "move the call into a step, and replace that step with `.mock(…)` in this test".to_owned(),
    }
}

#[cfg(target_arch = "wasm32")]
mod bindings {
    use wasm_bindgen::prelude::*;

    // An entrypoint's method gets no `env` from the Rust glue; the module has it for the whole isolate.
    #[wasm_bindgen(inline_js = r#"
import { env } from "cloudflare:workers";
export function stepwellEnv() { return env; }
"#)]
    extern "C" {
        #[wasm_bindgen(js_name = stepwellEnv)]
        pub fn own_env() -> JsValue;
    }
}

#[cfg(target_arch = "wasm32")]
fn text(kind: &'static str, name: &str) -> Result<String, EnvError> {
    let value = js_sys::Reflect::get(&bindings::own_env(), &name.into()).unwrap_or_default();
    if value.is_undefined() || value.is_null() {
        let hint = match kind {
            "secret" => {
                format!("set it with `wrangler secret put {name}`, or in `.dev.vars` for development")
            }
            _ => format!("add {name} to [vars] in wrangler.toml, or to `.dev.vars` for development"),
        };
        return Err(EnvError::Missing { kind, name: name.to_owned(), hint });
    }
    value.as_string().ok_or_else(|| EnvError::Unusable {
        kind,
        name: name.to_owned(),
        reason: "its value is not text".to_owned(),
    })
}

#[cfg(target_arch = "wasm32")]
fn bound<T>(
    kind: &'static str,
    name: &str,
    get: impl FnOnce(&worker::Env) -> worker::Result<T>,
) -> Result<T, EnvError> {
    use wasm_bindgen::JsCast;

    let env = bindings::own_env();
    let value = js_sys::Reflect::get(&env, &name.into()).unwrap_or_default();
    if value.is_undefined() || value.is_null() {
        let hint = "declare the binding in wrangler.toml".to_owned();
        return Err(EnvError::Missing { kind, name: name.to_owned(), hint });
    }
    get(env.unchecked_ref()).map_err(|error| EnvError::Unusable {
        kind,
        name: name.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(not(target_arch = "wasm32"))]
fn text(kind: &'static str, name: &str) -> Result<String, EnvError> {
    native::text(name).ok_or_else(|| {
        let method = if kind == "secret" { "secret" } else { "var" };
        let hint = format!("supply it with `Test::new(app()).{method}(\"{name}\", \"…\")`");
        EnvError::Missing { kind, name: name.to_owned(), hint }
    })
}

#[cfg(not(target_arch = "wasm32"))]
fn bound<T>(
    kind: &'static str,
    name: &str,
    _get: impl FnOnce(&worker::Env) -> worker::Result<T>,
) -> Result<T, EnvError> {
    Err(EnvError::not_in_tests(kind, name))
}

/// What a test supplies instead of a Worker's environment.
#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

    /// Secrets and variables by name. A Worker keeps both in one place, too.
    pub type Values = Rc<BTreeMap<String, String>>;

    thread_local! {
        static VALUES: RefCell<Values> = RefCell::default();
    }

    pub(super) fn text(name: &str) -> Option<String> {
        VALUES.with_borrow(|values| values.get(name).cloned())
    }

    /// Supplies values to this thread until the guard is dropped.
    #[cfg(feature = "testing")]
    pub fn supply(values: Values) -> Supplied {
        Supplied(VALUES.replace(values))
    }

    /// Takes the values back when dropped: another test may follow on the same thread.
    #[cfg(feature = "testing")]
    pub struct Supplied(Values);

    #[cfg(feature = "testing")]
    impl Drop for Supplied {
        fn drop(&mut self) {
            VALUES.set(std::mem::take(&mut self.0));
        }
    }
}
