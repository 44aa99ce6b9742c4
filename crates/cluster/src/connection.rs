// SPDX-License-Identifier: Apache-2.0
//! The connection of the agent and of the controller to the API server, and their end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::watch;

/// Interval at which the flag of a signal is read.
const STOP: Duration = Duration::from_millis(250);

/// Errors that end the agent or the controller.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The operating system refuses resources of the runtime.
    #[error("starting the runtime: {0}")]
    Runtime(#[from] io::Error),
    /// There is no API server to ask.
    #[error("configuration of the API server: {0} (use --kubeconfig, or run the command in a pod)")]
    Configuration(String),
}

/// Returns a client of the API server that a kubeconfig names. `None`: that of the pod, or of `KUBECONFIG`.
///
/// # Errors
/// [`AgentError::Configuration`].
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, AgentError> {
    let config = configuration(kubeconfig).await?;
    Client::try_from(config).map_err(|error| AgentError::Configuration(error.to_string()))
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, AgentError> {
    let failed = AgentError::Configuration;
    let Some(path) = kubeconfig else {
        let inferred = Config::infer().await;
        return inferred.map_err(|error| failed(error.to_string()));
    };
    let file = Kubeconfig::read_from(path).map_err(|error| failed(error.to_string()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.map_err(|error| failed(error.to_string()))
}

/// Returns a value that becomes true soon after `stop` does.
pub(crate) fn ended(stop: &Arc<AtomicBool>) -> watch::Receiver<bool> {
    let (ending, ended) = watch::channel(false);
    let flag = Arc::clone(stop);
    tokio::spawn(async move {
        while !flag.load(Ordering::Relaxed) {
            tokio::time::sleep(STOP).await;
        }
        // Without receivers everything has ended already.
        let _ = ending.send(true);
    });
    ended
}
