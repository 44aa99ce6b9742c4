// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server. These are all that the agent makes, and its ClusterRole has exactly their verbs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::follow::{Followed, bounded, follow};
use crate::hash::hash;
use crate::resources::NodePartitionSpec;

/// Longest name of a node that is part of the name of a field manager, which has at most 128 octets.
const NODE_MAX: usize = 100;

/// Returns the field manager of the agent of a node.
fn manager(node: &str) -> String {
    match node.len() {
        0..=NODE_MAX => format!("quietwire-{node}"),
        _ => format!("quietwire-{}", hash(&[node], 16)),
    }
}

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

    /// Returns all resources of a kind.
    pub(super) fn all<K: Followed>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns the labels of the node (verb `get` of `nodes`).
    pub(super) async fn labels(&self) -> kube::Result<BTreeMap<String, String>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = bounded(nodes.get_metadata(&self.node)).await?;
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
        let list = bounded(nodes.list_metadata(&parameters)).await?;
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
        let parameters = PatchParams::apply(&manager(&self.node)).force();
        let (all, patch) = (self.all::<K>(), Patch::Apply(patch));
        bounded(all.patch_status(name, &parameters, &patch)).await?;
        Ok(())
    }

    /// Keeps all resources current in `known`, until its receivers are gone (verbs `list` and `watch` of `nodepartitions` and `dataplanes`).
    pub(super) async fn follow<K: Followed>(self, known: watch::Sender<Option<Vec<K>>>) {
        follow(self.all(), known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_managers_of_nodes_differ_and_are_short() {
        assert_eq!(manager("n1"), "quietwire-n1");
        let long = ["a", "b"].map(|end| manager(&format!("{}{end}", "n".repeat(252))));
        assert!(long[0] != long[1] && long[0].len() <= 128, "{long:?}");
    }
}
