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
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::programs::VERSION;
use crate::connection::{AgentError, connect, ended};
use crate::follow::bounded;
use crate::resources::now;

/// Most simulated nodes.
pub const NODES_MAX: u16 = 5000;
/// Namespace of the leases of nodes, and their duration, seconds (kubelet's defaults).
const LEASES: &str = "kube-node-lease";
const LEASE_S: u32 = 40;
/// Interval at which each lease is renewed, as kubelet renews it, and the time for the API server to answer all requests about a node. A
/// node without answers delays the next renewal of the others by this time at most.
const RENEW: Duration = Duration::from_secs(10);
/// Number of nodes that are kept alive at the same time. If the API server needs 100 ms for each, 1,000 nodes take 2 s.
const AT_ONCE: usize = 50;
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
        let nodes = Arc::new(Nodes::new(client));
        let mut renewals = interval(RENEW);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = ended(stop);
        let mut round = 0_u64;
        let mut reported = String::new();
        while !*ended.borrow() {
            tokio::select! {
                _ = renewals.tick() => {}
                _ = ended.changed() => break,
            }
            let problem = tokio::select! {
                problem = keep_all(&nodes, count.min(NODES_MAX), round) => problem,
                _ = ended.changed() => break,
            };
            // A node that could not be made is made with the next round of all.
            round = match problem.is_empty() {
                true => round.wrapping_add(1),
                false => 0,
            };
            if problem != reported && !problem.is_empty() {
                tracing::warn!("simulated nodes: {problem}");
            }
            reported = problem;
        }
        Ok(())
    })
}

/// Keeps all nodes alive, [`AT_ONCE`] at the same time. Returns the last problem; empty without one.
async fn keep_all(nodes: &Arc<Nodes>, count: u16, round: u64) -> String {
    let mut problem = String::new();
    let mut running = JoinSet::new();
    for number in 1..=count {
        if running.len() >= AT_ONCE
            && let Some(kept) = running.join_next().await
        {
            record_problem(&mut problem, kept);
        }
        let nodes = Arc::clone(nodes);
        running.spawn(async move {
            let kept = timeout(RENEW, nodes.keep(&name(number), round)).await;
            kept.map_err(|_| format!("no reply within {RENEW:?}"))?
                .map_err(|error| error.to_string())
        });
    }
    while let Some(kept) = running.join_next().await {
        record_problem(&mut problem, kept);
    }
    problem
}

/// Replaces the problem by that of a task, if it has one.
fn record_problem(problem: &mut String, kept: Result<Result<(), String>, JoinError>) {
    match kept {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => *problem = reason,
        Err(error) => *problem = error.to_string(),
    }
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
            self.create_node(name).await?;
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

    async fn create_node(&self, name: &str) -> kube::Result<()> {
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
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use tokio::sync::Barrier;

    use super::*;
    use crate::runtime;
    use crate::simulated::Simulated;

    #[test]
    fn many_leases_are_renewed_at_the_same_time_within_bounds() {
        let count = 4 * AT_ONCE;
        let (running, most, all) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let counters = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&all));
        // It answers as many requests at the same time as there are: fewer get no answer.
        let full = Arc::new(Barrier::new(AT_ONCE));
        let service = tower::service_fn(move |_: Request<Body>| {
            let (running, most, all) = counters.clone();
            let full = Arc::clone(&full);
            async move {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                full.wait().await;
                running.fetch_sub(1, Ordering::SeqCst);
                all.fetch_add(1, Ordering::SeqCst);
                let reply = lease("simulated-0001").to_string().into_bytes();
                Ok::<_, Infallible>(Response::new(Body::from(reply)))
            }
        });
        let problem = runtime().unwrap().block_on(async {
            let nodes = Arc::new(Nodes::new(Client::new(service, "default")));
            // A round of leases only.
            keep_all(&nodes, u16::try_from(count).unwrap(), 1).await
        });
        assert_eq!(problem, "");
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
        assert_eq!(all.load(Ordering::SeqCst), count);
    }

    #[test]
    fn a_node_that_cannot_be_kept_is_a_problem_of_the_round() {
        let server = Simulated::default();
        server.set_away(true);
        let nodes = Arc::new(Nodes::new(server.client()));
        let problem = runtime().unwrap().block_on(keep_all(&nodes, 3, 0));
        assert!(problem.contains("away"), "{problem}");
        assert!(server.all("leases").is_empty());
    }

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
            all.filter(|(_, path)| path.split('/').next() == Some(resource))
                .count()
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
