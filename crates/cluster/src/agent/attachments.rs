// SPDX-License-Identifier: Apache-2.0
//! Attachments of the CNI plugin that remain after the end of their containers, and those that a restarted switch lacks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::BootId;
use tokio::sync::{Notify, watch};

use crate::cni::{self, RunningSwitch};

/// Interval between two rounds.
const INTERVAL: Duration = Duration::from_secs(10);

/// Removes attachments whose containers have ended without DEL, and attaches running containers again whose ports the switch lacks, until
/// `ended` becomes true. `root` is the root directory of the node. `restarted` starts a round at once: after a restart of the switch, containers
/// have no network until then. Errors are logged once, and tried again.
pub(super) async fn serve(root: PathBuf, restarted: Arc<Notify>, mut ended: watch::Receiver<bool>) {
    let directory = root.join(cni::SOCKET_DIRECTORY.trim_start_matches('/'));
    let mut reported: Vec<String> = Vec::new();
    while !*ended.borrow() {
        let (directory, root) = (directory.clone(), root.clone());
        let work = move || {
            let boot = BootId::current();
            let removed = cni::remove_left(&directory, &root, boot, RunningSwitch::new);
            let again = cni::attach_again(&directory, &root, boot, RunningSwitch::new);
            (removed, again)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((removed, again)) => {
                for port in removed.ports {
                    tracing::info!("port {port} is removed: its container has ended without DEL");
                }
                for port in again.ports {
                    tracing::info!("port {port} is added again: the switch was started again");
                }
                let errors = [removed.errors, again.errors].concat();
                for error in errors.iter().filter(|it| !reported.contains(*it)) {
                    tracing::warn!("attachments of containers: {error}");
                }
                reported = errors;
            }
            Err(error) => tracing::error!("attachments of containers: {error}"),
        }
        tokio::select! {
            _ = ended.changed() => break,
            () = restarted.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
