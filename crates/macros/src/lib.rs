//! The procedural macros of Stepwell's SDK. Use them through the `stepwell` crate.

mod job;
mod main_fn;
mod workflow;

use proc_macro::TokenStream;

/// Makes a workflow of an `async fn(ctx: Ctx, input: T) -> Result<O>`. The input may be left out.
///
/// The workflow's name is the function's; `#[workflow(name = "other")]` gives it another one. With
/// `#[workflow(timeout = "24h")]` a run of it is failed when it has not ended by then. With
/// `#[workflow(retention = "7d")]` it is deleted so long after its end; with `"forever"`, never. With
/// `#[workflow(dispatch = "queued")]` it is called through the deployment's queue, if there is one. With
/// `#[workflow(cron = "0 9 * * MON-FRI", zone = "Europe/Berlin")]` or `#[workflow(every = "5 minutes")]` runs of it start
/// by themselves. With `#[workflow(on = "order/paid", when = "event.data.amount > 100")]` each such event starts one. With
/// `#[workflow(cancel_on = "order/cancelled", cancel_when = "event.data.id == input.id")]` such an event
/// cancels a run.
#[proc_macro_attribute]
pub fn workflow(attributes: TokenStream, item: TokenStream) -> TokenStream {
    workflow::expand(attributes.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a handler of jobs of an `async fn(job: Job<T>) -> Result<()>`.
///
/// It handles the jobs of the queue with the function's name; `#[job(queue = "other")]` names another one. With
/// `#[job(concurrency = 12)]` so many jobs are handled at once, with `#[job(per_second = 50)]` so many begin in a second at
/// the most, and with `#[job(timeout = "2m")]` a job may take so long.
#[proc_macro_attribute]
pub fn job(attributes: TokenStream, item: TokenStream) -> TokenStream {
    job::expand(attributes.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a Worker of a `fn() -> App`: exports what the engine calls.
#[proc_macro_attribute]
pub fn main(attributes: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(&attributes.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
