//! The routes of keys. New keys are made here: the catalog gets their hashes, and the caller is the only one who ever
//! sees the text.

use stepwell_core::{access::Credential, catalog::OVERLAP_MS_DEFAULT};
use stepwell_protocol::{
    access::{CreatedKey, KeyList, KeyView, NewKey, Rotation},
    key::{self, Fresh, Kind},
};

use super::{
    body::{is_empty, read},
    error::Refusal,
    front::Front,
    response::Response,
};
use crate::{access::hash, calls::catalog::Request, runtime};

/// `GET /api/keys`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ListKeys).await
}

/// `POST /api/keys`
pub(super) async fn create(front: &Front, body: &str) -> Result<Response, Refusal> {
    let created = make(front, read(body)?).await?;
    Ok(Response::of(201, &created))
}

/// `POST /api/keys/{key}/rotate`
pub(super) async fn rotate(front: &Front, id: String, body: &str) -> Result<Response, Refusal> {
    let Rotation { overlap_ms } = if is_empty(body) { Rotation::default() } else { read(body)? };
    // Its text says what it is for, as that of the old one does.
    let KeyList { keys } = front.ask_catalog(Request::ListKeys).await?;
    let kind = keys.iter().find(|key| key.id == id).and_then(|key| Kind::of(&key.environment));
    let fresh = draw(kind.unwrap_or(Kind::Live), front.namespace());
    let (credential, overlap_ms) = (credential(&fresh), overlap_ms.unwrap_or(OVERLAP_MS_DEFAULT));
    let view: KeyView = front.ask_catalog(Request::RotateKey { id, credential, overlap_ms }).await?;
    Ok(Response::of(201, &CreatedKey { key: fresh.text, view }))
}

/// `POST /api/keys/{key}/revoke`
pub(super) async fn revoke(front: &Front, id: String) -> Result<Response, Refusal> {
    front.pass_on(Request::RevokeKey { id }).await
}

pub(super) async fn make(front: &Front, new: NewKey) -> Result<CreatedKey, Refusal> {
    let kind = new.environment.as_deref().and_then(Kind::of).filter(|kind| *kind != Kind::Session);
    let fresh = draw(kind.unwrap_or(Kind::Live), front.namespace());
    let view: KeyView = front.ask_catalog(Request::CreateKey { credential: credential(&fresh), new }).await?;
    Ok(CreatedKey { key: fresh.text, view })
}

pub(super) fn draw(kind: Kind, namespace: &str) -> Fresh {
    let mut random = [0; key::RANDOM_BYTES];
    runtime::fill_random(&mut random);
    key::make(kind, namespace, random)
}

pub(super) fn credential(fresh: &Fresh) -> Credential {
    Credential { id: fresh.named.id.clone(), hash: hash(&fresh.text) }
}
