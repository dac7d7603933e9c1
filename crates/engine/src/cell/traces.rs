//! Sends the spans of a cell's runs to the collector, one request at a time: an object has few connections, and a collector
//! that hangs must not take them, nor the memory.

use std::{rc::Rc, time::Duration};

use futures::{channel::oneshot, future::select};
use stepwell_core::cell::{SPAN_LINGER_MS, SpansToSend};
use stepwell_protocol::Timestamp;
use worker::Delay;

use super::Host;
use crate::{log, runtime};

/// How long there is after a request that failed.
const AFTER_FAILURE_MS: u64 = 5_000;

impl Host {
    /// Sends what waits to be sent, at this time; if something is being sent, after that.
    pub(super) fn send_spans_at(self: &Rc<Self>, at: Timestamp) {
        if self.is_sending.replace(true) {
            if at <= runtime::clock()
                && let Some(wake) = self.send_spans.take()
            {
                // Whoever pauses may have gone on already.
                let _ = wake.send(());
            }
            return;
        }
        let host = self.clone();
        let mut pause_ms = at.as_millis().saturating_sub(runtime::clock().as_millis());
        self.state.wait_until(async move {
            loop {
                if pause_ms > 0 {
                    let pause = Delay::from(Duration::from_millis(pause_ms));
                    if pause_ms == AFTER_FAILURE_MS {
                        pause.await;
                    } else {
                        let (wake, woken) = oneshot::channel();
                        host.send_spans.replace(Some(wake));
                        select(pause, woken).await;
                        host.send_spans.take();
                    }
                }
                let SpansToSend { spans, left_out } = host.machine.borrow_mut().take_spans();
                if left_out > 0 {
                    log::warn!("{left_out} spans were left out: too many waited to be sent");
                    host.machine.borrow_mut().count_lost_spans(left_out);
                }
                let (Some(collector), Ok(namespace)) = (&host.collector, host.own_namespace()) else { break };
                if spans.is_empty() {
                    break;
                }
                pause_ms = SPAN_LINGER_MS;
                if let Err(why) = collector.send(namespace, &spans).await {
                    log::warn!("{} spans did not reach the collector: {why}", spans.len());
                    host.machine.borrow_mut().count_lost_spans(spans.len() as u64);
                    pause_ms = AFTER_FAILURE_MS;
                }
            }
            host.is_sending.set(false);
        });
    }
}
