// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server. These are all that the agent makes, and its ClusterRole has exactly their verbs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;

use crate::resources::{DataPlane, NodePartition, NodePartitionSpec};

/// Time after which the API server ends a watch, seconds. Below its limit of 295 s for the client library.
const WATCH_S: u32 = 270;
/// First and longest pause after an error.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A resource that the agent follows.
pub(super) trait Followed:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + PartialEq + Send + Sync + 'static
{
}

impl Followed for NodePartition {}
impl Followed for DataPlane {}

/// The API server, for one node.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    node: String,
}

impl Cluster {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    fn all<K: Followed>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns the labels of the node (verb `get` of `nodes`).
    pub(super) async fn labels(&self) -> kube::Result<BTreeMap<String, String>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get_metadata(&self.node).await?;
        Ok(node.metadata.labels.unwrap_or_default())
    }

    /// Returns the failure domain of each node that a resource selects (verb `list` of `nodes`).
    pub(super) async fn domains(
        &self,
        spec: &NodePartitionSpec,
    ) -> kube::Result<BTreeMap<String, String>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let pairs = spec.node_selector.iter();
        let selector: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        let parameters = ListParams::default().labels(&selector.join(","));
        let list = nodes.list_metadata(&parameters).await?;
        let domain = |labels: &BTreeMap<String, String>| {
            let value = labels.get(&spec.rollout.failure_domain);
            value.cloned().unwrap_or_default()
        };
        let nodes = list.items.iter();
        Ok(nodes
            .map(|node| (node.name_any(), domain(node.labels())))
            .collect())
    }

    /// Writes the state of the node in the status of a resource, or removes it (verb `patch` of `nodepartitions/status` and
    /// `dataplanes/status`). The agent owns the entry of its node only, so agents do not overwrite one another.
    pub(super) async fn report<K: Followed>(
        &self,
        name: &str,
        status: Option<&(impl Serialize + Sync)>,
    ) -> kube::Result<()> {
        let entry = status.map(serde_json::to_value).transpose();
        let entries: Vec<Value> = entry
            .map_err(kube::Error::SerdeError)?
            .into_iter()
            .collect();
        let patch = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": name },
            "status": { "nodes": entries },
        });
        let manager = format!("quietwire-{}", self.node);
        let parameters = PatchParams::apply(&manager).force();
        self.all::<K>()
            .patch_status(name, &parameters, &Patch::Apply(patch))
            .await?;
        Ok(())
    }

    /// Keeps all resources current in `known`, until its receivers are gone (verbs `list` and `watch` of `nodepartitions` and `dataplanes`).
    pub(super) async fn follow<K: Followed>(self, known: watch::Sender<Option<Vec<K>>>) {
        let mut pause = PAUSE.0;
        let mut reported = String::new();
        while !known.is_closed() {
            match self.follow_once(&known).await {
                // The watch ended at its time.
                Ok(()) => {
                    pause = PAUSE.0;
                    reported.clear();
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != reported {
                        tracing::warn!("{}: {text}", K::plural(&()));
                        reported = text;
                    }
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(PAUSE.1);
                }
            }
        }
    }

    /// Lists the resources, and watches them until the API server ends the watch.
    pub(super) async fn follow_once<K: Followed>(
        &self,
        known: &watch::Sender<Option<Vec<K>>>,
    ) -> kube::Result<()> {
        let api = self.all::<K>();
        let list = api.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        let mut all: BTreeMap<String, K> = list
            .items
            .into_iter()
            .map(|resource| (resource.name_any(), resource))
            .collect();
        let publish = |all: &BTreeMap<String, K>| {
            known.send_if_modified(|before| {
                let now: Vec<K> = all.values().cloned().collect();
                let is_new = before.as_ref() != Some(&now);
                *before = Some(now);
                is_new
            });
        };
        publish(&all);
        let parameters = WatchParams::default().timeout(WATCH_S);
        let mut events = pin!(api.watch(&parameters, &version).await?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(resource) | WatchEvent::Modified(resource) => {
                    all.insert(resource.name_any(), resource);
                }
                WatchEvent::Deleted(resource) => {
                    all.remove(&resource.name_any());
                }
                WatchEvent::Bookmark(_) => {}
                // The version is too old: list again.
                WatchEvent::Error(_) => return Ok(()),
            }
            publish(&all);
        }
        Ok(())
    }
}
