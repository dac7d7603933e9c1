//! Whether the deployment may answer anybody: its settings make sense, its key cannot be guessed, and a development
//! server is asked by its user's own machine.
//!
//! What is wrong with a deployment is told to the holder of its key alone; the log has it for its owner.

use std::{cell::Cell, rc::Rc};

use stepwell_protocol::{Code, signature::KEY_PREVIOUS};
use worker::{Env, Request, Url};

use super::{auth, error::Refusal, guessing};
use crate::{
    log,
    settings::{self, Deployment, KEY},
};

thread_local! {
    // The secret stays as it is for as long as the isolate lives.
    static IS_KEY_GOOD: Cell<bool> = const { Cell::new(false) };
}

/// What the deployment says. Refuses every request while something is wrong with it.
pub fn check(request: &Request, url: &Url, env: &Env) -> Result<Rc<Deployment>, Refusal> {
    let deployment = Deployment::known(env);
    if let Ok(deployment) = &deployment {
        check_host(deployment, request, url)?;
    }
    let checked = deployment.and_then(|deployment| {
        check_key(env, deployment.is_dev)?;
        Ok(deployment)
    });
    checked.map_err(|wrong| {
        log::error!("every request is refused. {wrong}");
        // Here too, somebody may be guessing.
        if guessing::check(request).is_ok() && auth::is_root(request, env) {
            return Refusal::new(Code::Misconfigured, wrong);
        }
        guessing::failed(request);
        let detail = "The deployment is not set up, and answers nobody. Its log says what to change; so does this \
                      answer, to a request with the deployment's own key.";
        Refusal::new(Code::Misconfigured, detail)
    })
}

/// A page that a browser has got from elsewhere can make its own name mean this machine. It cannot change the name that
/// its requests are sent to.
///
/// The header is looked at besides: a server in between may let a page choose the address.
fn check_host(deployment: &Deployment, request: &Request, url: &Url) -> Result<(), Refusal> {
    if !deployment.is_dev {
        return Ok(());
    }
    let named = request.headers().get("host").ok().flatten();
    let is_named_well = named.is_none_or(|host| {
        let url = Url::parse(&format!("http://{host}"));
        url.is_ok_and(|url| url.host_str().is_some_and(settings::is_loopback))
    });
    if is_named_well && url.host_str().is_some_and(settings::is_loopback) {
        return Ok(());
    }
    let detail = "This is a development server: STEPWELL_DEV is set. Ask it as localhost, 127.0.0.1 or [::1]; for any \
                  other host, leave that variable out.";
    Err(Refusal::new(Code::HostNotAllowed, detail))
}

fn check_key(env: &Env, is_dev: bool) -> Result<(), String> {
    if IS_KEY_GOOD.get() {
        return Ok(());
    }
    if env.secret(KEY).is_err() {
        return Err(format!("The secret {KEY} is not set. Set it with `npx wrangler secret put {KEY}`."));
    }
    // The previous key opens every door as well.
    for name in [KEY, KEY_PREVIOUS] {
        if let Ok(key) = env.secret(name)
            && !is_dev
        {
            settings::check_key(name, &key.to_string())?;
        }
    }
    IS_KEY_GOOD.set(true);
    Ok(())
}
