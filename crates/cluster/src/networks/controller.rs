// SPDX-License-Identifier: Apache-2.0
//! Life of the controller: it follows the networks, makes, changes and removes their definitions, and reports their states. It also
//! summarises the reports of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::definition::{Key, MANAGED_BY, definitions, is_current, is_made_here, resource};
use super::status;
use crate::connection::{AgentError, connect, ended};
use crate::controller_status::{MANAGER, write_status};
use crate::follow::{bounded, follow};
use crate::problem::Problem;
use crate::resources::{DataPlane, Network};
use crate::summary;

/// Shortest pause between passes: changes in quick succession are handled together.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a pass that failed.
const RETRY: Duration = Duration::from_secs(30);
/// Interval of passes without changes, which restore definitions that others changed or deleted.
const RESTORE: Duration = Duration::from_secs(300);

/// Options of the controller.
#[derive(Clone, Debug, Default)]
pub struct ControllerOptions {
    /// File with the address and the credentials of the API server. Default: those of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
}

/// Runs the controller until `stop` becomes true. Definitions and summaries stay. Several controllers at the same time do the same.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: &ControllerOptions, stop: &Arc<AtomicBool>) -> Result<(), AgentError> {
    crate::runtime()?.block_on(serve(options, stop))
}

async fn serve(options: &ControllerOptions, stop: &Arc<AtomicBool>) -> Result<(), AgentError> {
    let client = connect(options.kubeconfig.as_deref()).await?;
    let mut ended = ended(stop);
    let (known, mut networks) = watch::channel(None::<Vec<Network>>);
    let following = tokio::spawn(follow(Api::<Network>::all(client.clone()), known));
    let summarising = tokio::spawn(summary::serve(client.clone(), ended.clone()));
    let (known, mut planes) = watch::channel(None::<Vec<DataPlane>>);
    let following_planes = tokio::spawn(follow(Api::<DataPlane>::all(client.clone()), known));
    let controller = Controller::new(client);
    let (mut problem, mut problem_of_states) = (Problem::default(), Problem::default());
    while !*ended.borrow() {
        let current = networks.borrow_and_update().clone();
        let current_planes = planes.borrow_and_update().clone();
        let mut pause = RESTORE;
        // Without a list nothing is changed: the API server may be away.
        if let Some(current) = &current
            && problem.note(
                "network-attachment-definitions",
                controller.pass(current).await,
            )
        {
            pause = RETRY;
        }
        if let (Some(current), Some(planes)) = (&current, &current_planes)
            && problem_of_states.note(
                "states of networks",
                controller.report(current, planes).await,
            )
        {
            pause = RETRY;
        }
        tokio::select! {
            _ = ended.changed() => break,
            changed = networks.changed() => if changed.is_err() { break },
            changed = planes.changed() => if changed.is_err() { break },
            () = tokio::time::sleep(pause) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
    following.abort();
    following_planes.abort();
    summarising.abort();
    Ok(())
}

/// Errors of a pass. The next pass tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    /// The definitions cannot be listed.
    #[error("{0} (if the resource is unknown, install Multus with its definition)")]
    List(kube::Error),
    /// A definition or a state cannot be written, or a definition cannot be removed. All others are.
    #[error("{namespace}/{name}: {cause}")]
    One {
        /// Namespace of the network.
        namespace: String,
        /// Its name.
        name: String,
        /// The problem.
        cause: Box<kube::Error>,
    },
}

/// The controller.
pub(super) struct Controller {
    client: Client,
}

impl Controller {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the definitions of a namespace.
    fn within(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource())
    }

    /// Makes the definitions of all networks as they are wanted, and removes those of networks that do not exist any more (verbs `get` of
    /// `networks`, and `list`, `create`, `patch` and `delete` of `network-attachment-definitions`).
    pub(super) async fn pass(&self, networks: &[Network]) -> Result<(), PassError> {
        let wanted = definitions(networks);
        let present = self.present().await.map_err(PassError::List)?;
        let is_old = |key: &Key, definition: &Value| {
            let present = present.get(key);
            present.is_none_or(|present| !is_current(present, definition))
        };
        let old = wanted.iter().filter(|(key, wanted)| is_old(key, wanted));
        let surplus = present.keys().filter(|key| !wanted.contains_key(*key));
        let keys: BTreeSet<&Key> = old.map(|(key, _)| key).chain(surplus).collect();
        let mut failed = None;
        for key in keys {
            if let Err(cause) = self.settle(key, present.get(key)).await {
                let (namespace, name) = key.clone();
                // The first is reported. The others are tried again as well.
                failed.get_or_insert(PassError::One {
                    namespace,
                    name,
                    cause: Box::new(cause),
                });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Writes the states of networks that have changed (verb `patch` of `networks/status`).
    pub(super) async fn report(
        &self,
        networks: &[Network],
        planes: &[DataPlane],
    ) -> Result<(), PassError> {
        let mut failed = None;
        for network in networks {
            let Some(status) = status::changed(network, planes) else {
                continue;
            };
            let namespace = network.namespace().unwrap_or_default();
            let all: Api<Network> = Api::namespaced(self.client.clone(), &namespace);
            if let Err(cause) = write_status(&all, network, &json!(status)).await {
                failed.get_or_insert(PassError::One {
                    namespace,
                    name: network.name_any(),
                    cause: Box::new(cause),
                });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes, changes or removes one definition as its network is now. While a watch is interrupted, the list of networks is old: another
    /// controller may have made the definition of a newer network.
    async fn settle(&self, key: &Key, present: Option<&DynamicObject>) -> kube::Result<()> {
        let (namespace, name) = key;
        let networks: Api<Network> = Api::namespaced(self.client.clone(), namespace);
        let network = bounded(networks.get_opt(name)).await?;
        let wanted = definitions(network.as_slice());
        match (wanted.get(key), present) {
            (Some(wanted), Some(present)) if is_current(present, wanted) => Ok(()),
            (Some(wanted), present) => self.apply(key, wanted, present.is_some()).await,
            (None, Some(present)) => self.remove(key, present).await,
            (None, None) => Ok(()),
        }
    }

    /// Returns the definitions that a controller made.
    async fn present(&self) -> kube::Result<BTreeMap<Key, DynamicObject>> {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource());
        let (label, value) = MANAGED_BY;
        let parameters = ListParams::default().labels(&format!("{label}={value}"));
        let list = bounded(all.list(&parameters)).await?;
        let made_here = list.items.into_iter().filter(is_made_here);
        Ok(made_here
            .map(|object| {
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                (key, object)
            })
            .collect())
    }

    /// Writes a definition. One that others made under the same name stays: the API server reports the conflict.
    async fn apply(&self, key: &Key, definition: &Value, is_made: bool) -> kube::Result<()> {
        let (namespace, name) = key;
        let parameters = PatchParams {
            force: is_made,
            ..PatchParams::apply(MANAGER)
        };
        let (all, patch) = (self.within(namespace), Patch::Apply(definition));
        bounded(all.patch(name, &parameters, &patch)).await?;
        tracing::info!("network-attachment-definition {namespace}/{name} is written");
        Ok(())
    }

    async fn remove(&self, key: &Key, object: &DynamicObject) -> kube::Result<()> {
        let (namespace, name) = key;
        // Not another object that got the name meanwhile.
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: object.metadata.uid.clone(),
            ..Preconditions::default()
        });
        let all = self.within(namespace);
        match bounded(all.delete(name, &parameters)).await {
            Ok(_) => tracing::info!("network-attachment-definition {namespace}/{name} is removed"),
            // The garbage collector was faster.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
