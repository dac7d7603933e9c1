//! Who asks, once that was read off a request.

use stepwell_core::{
    access::{Credential, Need},
    token::Vouched,
};

use crate::access::Access;

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// The deployment's own key, which may do everything.
    Root,
    /// Somebody with a key or a session that may be good.
    Bearer {
        /// In which namespace it would be.
        namespace: String,
        /// What was brought.
        credential: Credential,
        /// What an issuer has vouched for.
        vouched: Option<Vouched>,
    },
    /// Nobody, on a route that takes nobody in particular.
    Nobody,
}

impl Caller {
    /// What the objects are told of the caller.
    pub fn access(&self, need: Need) -> Option<Access> {
        match self {
            Self::Bearer { credential, vouched, .. } => {
                let (credential, vouched) = (credential.clone(), vouched.clone());
                Some(Access { credential, vouched, need })
            }
            Self::Root | Self::Nobody => None,
        }
    }
}
