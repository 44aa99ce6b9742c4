// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server. These are all that the agent makes, and its ClusterRole has exactly their verbs.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::{Client, Resource as _};
use serde_json::json;
use tokio::sync::watch;

use crate::follow::{Followed, bounded, follow};
use crate::resources::{NodeReport, NodeReportSpec};

/// Owner of the fields that agents write.
const MANAGER: &str = "quietwire-agent";

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

    /// Returns the metadata of the node (verb `get` of `nodes`).
    pub(super) async fn node(&self) -> kube::Result<ObjectMeta> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = bounded(nodes.get_metadata(&self.node)).await?;
        Ok(node.metadata)
    }

    /// Returns the report of the node (verb `get` of `nodereports`). `None` if there is none.
    pub(super) async fn reported(&self) -> kube::Result<Option<NodeReportSpec>> {
        let report = bounded(self.all::<NodeReport>().get_opt(&self.node)).await?;
        Ok(report.map(|report| report.spec))
    }

    /// Writes the report of the node, with the node as its owner (verbs `create` and `patch` of `nodereports`). Only the agent of the node
    /// writes it.
    pub(super) async fn report(&self, node_uid: &str, report: &NodeReportSpec) -> kube::Result<()> {
        let patch = json!({
            "apiVersion": NodeReport::api_version(&()),
            "kind": NodeReport::kind(&()),
            "metadata": {
                "name": self.node,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node_uid,
                }],
            },
            "spec": report,
        });
        let parameters = PatchParams::apply(MANAGER).force();
        let (all, patch) = (self.all::<NodeReport>(), Patch::Apply(patch));
        bounded(all.patch(&self.node, &parameters, &patch)).await?;
        Ok(())
    }

    /// Keeps all resources current in `known`, until its receivers are gone (verbs `list` and `watch` of `nodepartitions` and `dataplanes`).
    pub(super) async fn follow<K: Followed>(self, known: watch::Sender<Option<Vec<K>>>) {
        follow(self.all(), known).await;
    }
}
