// SPDX-License-Identifier: Apache-2.0
//! Attachments of the CNI plugin that remain after the end of their containers.

use std::path::PathBuf;
use std::time::Duration;

use quietwire_base::BootId;
use tokio::sync::watch;

use crate::cni::{self, RunningSwitch};

/// Interval between two rounds.
const INTERVAL: Duration = Duration::from_secs(20);

/// Removes attachments whose containers have ended without DEL, until `ended` becomes true. `root` is the root directory of the node. Errors
/// are logged once, and tried again.
pub(super) async fn serve(root: PathBuf, mut ended: watch::Receiver<bool>) {
    let directory = root.join(cni::SOCKET_DIRECTORY.trim_start_matches('/'));
    let mut reported: Vec<String> = Vec::new();
    while !*ended.borrow() {
        let (directory, root) = (directory.clone(), root.clone());
        let work = move || {
            let boot = BootId::current();
            cni::remove_left(&directory, &root, boot, RunningSwitch::new)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(removed) => {
                for port in removed.ports {
                    tracing::info!("port {port} is removed: its container has ended without DEL");
                }
                for error in removed.errors.iter().filter(|it| !reported.contains(*it)) {
                    tracing::warn!("attachments of ended containers: {error}");
                }
                reported = removed.errors;
            }
            Err(error) => tracing::error!("attachments of ended containers: {error}"),
        }
        tokio::select! {
            _ = ended.changed() => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
