//! How runs of a workflow are treated: what its app declares, and what the deployment says of all runs.

use stepwell_protocol::program::{Dispatch, WorkflowDescription};

use crate::settings::Deployment;

/// How runs of a workflow are treated.
#[derive(Clone, Copy)]
pub struct Terms {
    /// How their program is called.
    pub dispatch: Dispatch,
    /// How long they may take; without end, if that is not said.
    pub timeout_ms: Option<u64>,
    /// How long they are kept after their end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
    /// Whether that is what the deployment says of all runs.
    pub retention_is_default: bool,
    /// Whether they are started only with an idempotency key.
    pub key_required: bool,
}

impl Terms {
    /// Those of a workflow that says nothing about it: the engine's own, say.
    pub fn unsaid(&Deployment { retention_ms, key_required, .. }: &Deployment) -> Self {
        let dispatch = Dispatch::default();
        Self { dispatch, timeout_ms: None, retention_ms, retention_is_default: true, key_required }
    }

    /// Those that an app declares.
    pub fn of(workflow: &WorkflowDescription, deployment: &Deployment) -> Self {
        Self {
            dispatch: workflow.dispatch,
            timeout_ms: workflow.timeout_ms,
            retention_ms: match workflow.retention_ms {
                Some(0) => None,
                Some(ms) => Some(ms),
                None => deployment.retention_ms,
            },
            retention_is_default: workflow.retention_ms.is_none(),
            key_required: workflow.key_required || deployment.key_required,
        }
    }
}
