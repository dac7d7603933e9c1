//! Who asks: what a Worker passes on to the objects along with what was asked for.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stepwell_core::{
    access::{Credential, Need},
    token::Vouched,
};
use stepwell_protocol::text::hex;

/// On whose behalf something is asked, and what that takes. Without it, it is asked by the deployment's own key, or
/// by Stepwell itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    /// What the caller has brought.
    pub credential: Credential,
    /// What an issuer has vouched for, if it is a token; the Worker has verified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<Vouched>,
    /// What the request takes.
    pub need: Need,
}

/// SHA-256 of a text, in hexadecimal digits.
pub fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
