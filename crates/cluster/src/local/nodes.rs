// SPDX-License-Identifier: Apache-2.0
//! Simulated nodes: a `Node` and a lease each, kept alive as kubelet keeps its own, without kubelet and without pods.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::programs::VERSION;
use crate::connection::{AgentError, connect, ended};
use crate::follow::bounded;
use crate::resources::now;

/// Most simulated nodes.
pub const NODES_MAX: u16 = 5000;
/// Namespace of the leases of nodes, and their duration, seconds (kubelet's defaults).
const LEASES: &str = "kube-node-lease";
const LEASE_S: u32 = 40;
/// Interval at which each lease is renewed, as kubelet renews it.
const RENEW: Duration = Duration::from_secs(10);
/// Number of renewals after which the status is written again. Without leases for some time, others have changed it.
const STATUS_EVERY: u64 = 6;
const MANAGER: &str = "quietwire-simulated-nodes";

/// Keeps `count` simulated nodes alive until `stop` becomes true. They stay in the API server then, and become NotReady.
///
/// # Errors
/// [`AgentError`].
pub fn run(kubeconfig: &Path, count: u16, stop: &Arc<AtomicBool>) -> Result<(), AgentError> {
    crate::runtime()?.block_on(async {
        let client = connect(Some(kubeconfig)).await?;
        let nodes = Nodes::new(client);
        let mut ended = ended(stop);
        let mut round = 0_u64;
        let mut reported = String::new();
        while !*ended.borrow() {
            let pass = async {
                let mut problem = String::new();
                for number in 1..=count.min(NODES_MAX) {
                    if let Err(error) = nodes.keep(&name(number), round).await {
                        problem = error.to_string();
                    }
                }
                problem
            };
            let problem = tokio::select! {
                problem = pass => problem,
                _ = ended.changed() => break,
            };
            // A node that could not be made is made with the next round of all.
            round = if problem.is_empty() { round + 1 } else { 0 };
            if problem != reported && !problem.is_empty() {
                tracing::warn!("simulated nodes: {problem}");
            }
            reported = problem;
            tokio::select! {
                _ = ended.changed() => break,
                () = tokio::time::sleep(RENEW) => {}
            }
        }
        Ok(())
    })
}

/// Returns the name of a simulated node.
fn name(number: u16) -> String {
    format!("simulated-{number:04}")
}

/// The API server, for simulated nodes.
struct Nodes {
    nodes: Api<Node>,
    leases: Api<Lease>,
}

impl Nodes {
    fn new(client: Client) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            leases: Api::namespaced(client, LEASES),
        }
    }

    /// Makes a node if it is absent, renews its lease, and from time to time writes its status.
    async fn keep(&self, name: &str, round: u64) -> kube::Result<()> {
        if round == 0 {
            self.make(name).await?;
        }
        let parameters = PatchParams::apply(MANAGER).force();
        let lease = Patch::Apply(lease(name));
        bounded(self.leases.patch(name, &parameters, &lease)).await?;
        if round.is_multiple_of(STATUS_EVERY) {
            let status = Patch::Apply(status(name));
            bounded(self.nodes.patch_status(name, &parameters, &status)).await?;
        }
        Ok(())
    }

    async fn make(&self, name: &str) -> kube::Result<()> {
        let node: Node = serde_json::from_value(node(name)).map_err(Error::SerdeError)?;
        match bounded(self.nodes.create(&PostParams::default(), &node)).await {
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop),
        }
    }
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "quietwire.io/simulated": "true",
        } },
        // No pod runs there.
        "spec": { "taints": [{ "key": "quietwire.io/simulated", "effect": "NoSchedule" }] },
    })
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": LEASES },
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": MicroTime(Timestamp::now()),
        },
    })
}

fn status(name: &str) -> Value {
    let now = now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "simulated",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "bootID": name, "containerRuntimeVersion": "simulated://1", "kernelVersion": "simulated",
                "kubeProxyVersion": "", "kubeletVersion": VERSION, "machineID": name, "operatingSystem": "linux",
                "osImage": "simulated", "systemUUID": name,
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;
    use crate::simulated::Simulated;

    #[test]
    fn a_node_is_made_once_and_its_lease_renewed_each_time() {
        let server = Simulated::default();
        let nodes = Nodes::new(server.client());
        runtime().unwrap().block_on(async {
            for round in 0..2 {
                nodes.keep("simulated-0001", round).await.unwrap();
            }
            // After a restart of the program, the node is there.
            nodes.keep("simulated-0001", 0).await.unwrap();
        });
        let all = server.all("nodes");
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["spec"]["taints"][0]["effect"], "NoSchedule");
        assert_eq!(all[0]["status"]["conditions"][0]["status"], "True");
        let leases = server.all("leases");
        assert_eq!(leases[0]["metadata"]["namespace"], LEASES);
        let of = |resource: &str, requests: &[(String, String)]| {
            let all = requests.iter();
            all.filter(|(_, plural)| plural == resource).count()
        };
        let requests = server.requests();
        assert_eq!(of("leases", &requests), 3, "{requests:?}");
        // Each time at the beginning: the node, and its status.
        assert_eq!(of("nodes", &requests), 4, "{requests:?}");
    }

    #[test]
    fn objects_are_of_their_types() {
        serde_json::from_value::<Node>(node("simulated-0001")).unwrap();
        serde_json::from_value::<Node>(status("simulated-0001")).unwrap();
        serde_json::from_value::<Lease>(lease("simulated-0001")).unwrap();
        assert_eq!(name(7), "simulated-0007");
    }
}
