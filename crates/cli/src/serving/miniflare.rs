//! Miniflare, for projects that declare KV, R2, D1 or queues: a Node process, and the workerd that it starts.

use std::{collections::BTreeMap, ffi::OsString, path::Path, process::Command};

use serde_json::{Value, json};

use super::{Kill, Serving, guarded, own_program};
use crate::{
    failure::{Failure, Result},
    project::{ASSETS, Consumer, D1Database, KvNamespace, ObjectBinding, Producer, R2Bucket, Worker},
};

/// The program that Node runs.
const SCRIPT: &str = include_str!("miniflare.mjs");

impl Serving {
    /// The command that serves the project with Miniflare.
    pub(super) fn miniflare(&self, workerd: &Path, node: &Path, miniflare: &Path) -> Result<Command> {
        let script = self.write("miniflare.mjs", SCRIPT)?;
        let config = self.write("miniflare.json", &self.options(miniflare).to_string())?;
        let mut command = guarded(node, Kill::AtOnce)?;
        command.arg(script).arg(config).env("MINIFLARE_WORKERD_PATH", self.guarded_workerd(workerd)?);
        Ok(command)
    }

    /// workerd as Miniflare starts it. If Node is killed, workerd must not go on alone with the data.
    fn guarded_workerd(&self, workerd: &Path) -> Result<OsString> {
        if !cfg!(target_os = "linux") {
            return Ok(workerd.into());
        }
        let quoted = |path: &Path| {
            let text = path.to_str();
            let text = text.ok_or_else(|| Failure::local(format!("{} is not UTF-8", path.display())))?;
            Ok::<_, Failure>(format!("'{}'", text.replace('\'', r"'\''")))
        };
        let (own, guard) = (quoted(&own_program()?)?, Kill::AtOnce.guard().join(" "));
        let script = format!("#!/bin/sh\nexec {own} {guard} {} \"$@\"\n", quoted(workerd)?);
        let path = self.write("workerd", &script)?;
        #[cfg(unix)]
        {
            use std::{fs, os::unix::fs::PermissionsExt as _};
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
                .map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
        }
        Ok(path.into())
    }

    /// What the script is told.
    fn options(&self, miniflare: &Path) -> Value {
        let workers: Vec<_> = self.project.named().map(|(name, worker)| self.worker(name, worker)).collect();
        json!({ "miniflare": miniflare, "port": self.port, "data": self.persisted(), "workers": workers })
    }

    fn worker(&self, name: &str, worker: &Worker) -> Value {
        let wrangler = &worker.wrangler;
        let services = self.services(worker).map(|(binding, service)| (binding, json!(service)));
        let dashboard = self.dashboard_files().filter(|_| name == "main");
        let dashboard =
            dashboard.map(|path| (ASSETS, json!({ "disk": { "path": path, "writable": false } })));
        let services: BTreeMap<_, _> = services.chain(dashboard).collect();
        let objects: BTreeMap<_, _> = wrangler
            .durable_objects
            .bindings
            .iter()
            .map(|ObjectBinding { name, class_name }| {
                (name, json!({ "className": class_name, "useSQLite": true }))
            })
            .collect();
        // What has no id yet is known by its name.
        let kv: BTreeMap<_, _> = wrangler
            .kv_namespaces
            .iter()
            .map(|KvNamespace { binding, id }| (binding, id.as_ref().unwrap_or(binding)))
            .collect();
        let r2: BTreeMap<_, _> = wrangler
            .r2_buckets
            .iter()
            .map(|R2Bucket { binding, bucket_name }| (binding, bucket_name.as_ref().unwrap_or(binding)))
            .collect();
        let d1: BTreeMap<_, _> = wrangler
            .d1_databases
            .iter()
            .map(|D1Database { binding, database_id }| (binding, database_id.as_ref().unwrap_or(binding)))
            .collect();
        let producers: BTreeMap<_, _> = wrangler
            .queues
            .producers
            .iter()
            .map(|Producer { binding, queue }| (binding, json!({ "queueName": queue })))
            .collect();
        let consumers: BTreeMap<_, _> =
            wrangler.queues.consumers.iter().map(|consumer| (&consumer.queue, consuming(consumer))).collect();
        json!({
            "name": wrangler.name,
            "folder": self.bundle(name),
            "compatibilityDate": wrangler.compatibility_date,
            "compatibilityFlags": wrangler.compatibility_flags,
            "bindings": self.texts(worker),
            "serviceBindings": services,
            "durableObjects": objects,
            "kvNamespaces": kv,
            "r2Buckets": r2,
            "d1Databases": d1,
            "queueProducers": producers,
            "queueConsumers": consumers,
        })
    }
}

/// A consumer, with what its configuration leaves to Miniflare left out.
fn consuming(consumer: &Consumer) -> Value {
    let Consumer { queue: _, max_batch_size, max_batch_timeout, max_retries, dead_letter_queue } = consumer;
    let all = [
        ("maxBatchSize", json!(max_batch_size)),
        ("maxBatchTimeout", json!(max_batch_timeout)),
        ("maxRetries", json!(max_retries)),
        ("deadLetterQueue", json!(dead_letter_queue)),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
