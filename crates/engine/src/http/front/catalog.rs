//! Asks the catalog of the caller's namespace, and passes its answers on.

use serde::de::DeserializeOwned;
use stepwell_protocol::{Code, json};

use super::{Front, unreadable};
use crate::{
    calls::catalog::{self, Call, Request},
    http::{error::Refusal, response::Response},
    log, runtime,
};

impl Front {
    /// Asks the namespace's catalog, and passes its answer on.
    pub async fn pass_on(&self, request: Request) -> Result<Response, Refusal> {
        let (status, body) = self.send_to_catalog(request).await?;
        Ok(Response::of_object(status, body))
    }

    /// Asks the namespace's catalog for something that is not simply passed on.
    pub async fn ask_catalog<T: DeserializeOwned>(&self, request: Request) -> Result<T, Refusal> {
        let (status, body) = self.send_to_catalog(request).await?;
        if status < 400 {
            json::from_str(&body).map_err(|_| unreadable())
        } else {
            Err(json::from_str(&body).map_or_else(|_| unreadable(), Refusal))
        }
    }

    async fn send_to_catalog(&self, request: Request) -> Result<(u16, String), Refusal> {
        self.check_somebody()?;
        let access = self.access.as_deref().cloned();
        let call = Call { namespace: self.namespace.to_string(), life: self.life, access, request };
        let answer = catalog::ask(&self.env, &call).await.map_err(|thrown| {
            log::error!("the catalog did not answer: {}", runtime::message(&thrown));
            Refusal::new(Code::Internal, "The catalog of the namespace did not answer. Try again.")
        })?;
        self.hear(answer.0);
        Ok(answer)
    }
}
