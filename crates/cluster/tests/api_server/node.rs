// SPDX-License-Identifier: Apache-2.0
//! The agent of a node whose machine is made of files, with the user and the rights of its DaemonSet.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use quietwire_cluster::agent::{AgentError, AgentOptions, Exports, run};
use quietwire_cluster::kubelet::KubeletPaths;
use quietwire_cluster::resources::{NodePartitionStatus, NodeReportSpec, PartitionReport};
use quietwire_host::machines;
use serde_json::{Value, json};

use super::networks::RunningController;
use super::server::{Server, User, wait_for};
use super::{api, object};

pub(crate) const NODE: &str = "n1";
/// Time for a reply of the agent.
const REPLY: Duration = Duration::from_secs(60);
pub(crate) const GOVERNOR: &str = "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor";
/// States of a node whose partition is applied.
pub(crate) const IN_FORCE: [&str; 3] = ["applied", "pending-reboot", "verified"];
const CONFIGURATION: &str = "kind: KubeletConfiguration\ncpuManagerPolicy: static\n\
    cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nreservedSystemCPUs: \"0,3\"\n";

/// A running agent. It ends when the value is dropped.
pub(crate) struct RunningAgent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

impl RunningAgent {
    fn start(server: &Server, root: &Path) -> Self {
        Self::with(server.kubeconfig_file(User::Agent(NODE)), root)
    }

    /// Starts an agent with a kubeconfig, on a machine of files.
    pub(crate) fn with(kubeconfig: PathBuf, root: &Path) -> Self {
        let kubelet = root.join("var/lib/kubelet");
        fs::create_dir_all(&kubelet).unwrap();
        fs::write(kubelet.join("config.yaml"), CONFIGURATION).unwrap();
        let options = AgentOptions {
            node: NODE.to_owned(),
            kubeconfig: Some(kubeconfig),
            root: root.to_owned(),
            control_socket: root.join("absent.sock"),
            places: KubeletPaths {
                configuration: kubelet.join("config.yaml"),
                cpu_state: kubelet.join("cpu_manager_state"),
                memory_state: kubelet.join("memory_manager_state"),
                pod_resources: kubelet.join("absent.sock"),
                device_plugins: kubelet.join("device-plugins"),
            },
            devices: None,
            exports: Exports::default(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || run(options, &flag));
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the agent, which leaves the partition as it is.
    pub(crate) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the settings of the machine.
pub(crate) fn settings(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut left = vec![root.join("proc"), root.join("sys")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                left.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap_or_default();
                files.insert(path, text.trim().to_owned());
            }
        }
    }
    files
}

/// Returns the state of the node for the partition of these tests, as its report has it.
async fn reported(admin: &Client) -> Option<PartitionReport> {
    let report = api(admin, "NodeReport").get_opt(NODE).await.unwrap()?;
    let report: NodeReportSpec = serde_json::from_value(report.data["spec"].clone()).unwrap();
    let mut states = report.partitions.into_iter();
    states.find(|state| state.partition == "quiet")
}

/// Waits until the agent reports one of some states.
pub(crate) async fn reaches(admin: &Client, phases: &[&str]) -> PartitionReport {
    wait_for(&format!("the node is one of {phases:?}"), async || {
        let status = reported(admin).await?;
        let phase = serde_json::to_value(status.phase).unwrap();
        phases.iter().any(|it| phase == json!(it)).then_some(status)
    })
    .await
}

/// Waits until the summary of the partition fulfils a condition.
async fn summary_is(
    partitions: &Api<DynamicObject>,
    what: &str,
    is_so: impl Fn(&NodePartitionStatus) -> bool,
) -> NodePartitionStatus {
    wait_for(what, async || {
        let partition = partitions.get("quiet").await.unwrap();
        let status = partition.data.get("status")?.clone();
        let status: NodePartitionStatus = serde_json::from_value(status).unwrap();
        is_so(&status).then_some(status)
    })
    .await
}

/// Writes the files of a machine with enough CPUs for the partition of these tests.
pub(crate) fn write_machine(root: &Path) {
    let machine = machines::Machine {
        cores: 4,
        ..machines::Machine::default()
    };
    machine.write(root).unwrap();
}

/// Returns the partition of these tests.
pub(crate) fn quiet() -> DynamicObject {
    let spec = json!({
        "nodeSelector": { "role": "quiet" },
        "request": { "forwarding": { "cpus": "3" }, "machine": { "bootIsolation": false } },
        "rollout": { "failureDomain": "zone" },
    });
    object("NodePartition", "quiet", &spec)
}

/// Waits until the agent has rolled the partition back.
pub(crate) async fn is_rolled_back(root: &Path) {
    let marker = root.join("run/quietwire/agent/partition.json");
    wait_for("the partition is rolled back", async || {
        (!marker.exists()).then_some(())
    })
    .await;
}

pub(crate) async fn a_partition_is_applied_drifts_and_is_rolled_back(
    server: &Server,
    admin: &Client,
) {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write_machine(root);
    let before = settings(root);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": NODE, "labels": { "role": "quiet", "zone": "z1" } },
    });
    let node: Node = serde_json::from_value(node).unwrap();
    let nodes: Api<Node> = Api::all(admin.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let agent = RunningAgent::start(server, root);
    let controller = RunningController::with(server.kubeconfig_file(User::Controller));

    let partitions = api(admin, "NodePartition");
    partitions
        .create(&PostParams::default(), &quiet())
        .await
        .unwrap();
    let status = reaches(admin, &IN_FORCE).await;
    assert_eq!(status.domain, "z1");
    assert_eq!(
        status.groups.get("forwarding").map(String::as_str),
        Some("3")
    );
    let summary = summary_is(&partitions, "the summary counts the node", |status| {
        let counts = &status.counts;
        counts.applied + counts.pending_reboot + counts.verified == 1
    })
    .await;
    assert_eq!((summary.selected, summary.next), (1, None));
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    let governor = root.join(GOVERNOR);
    assert_eq!(fs::read_to_string(&governor).unwrap().trim(), "performance");

    fs::write(&governor, "powersave").unwrap();
    let drifted = reaches(admin, &["drifted"]).await;
    assert!(
        drifted.failed_checks[0].file.contains("scaling_governor"),
        "{drifted:?}"
    );
    let summary = summary_is(&partitions, "the summary names the node", |status| {
        status.failed.first().is_some_and(|it| it.node == NODE)
    })
    .await;
    assert_eq!((summary.counts.drifted, summary.selected), (1, 1));
    assert_eq!(summary.failed[0].checks[0], drifted.failed_checks[0]);
    fs::write(&governor, "performance").unwrap();
    reaches(admin, &IN_FORCE).await;

    pods_have_addresses(admin, &root.join("run/quietwire/addresses/agent.sock")).await;

    // The partition stays when the agent ends. The next agent knows it.
    agent.end();
    assert_eq!(fs::read_to_string(&governor).unwrap().trim(), "performance");
    let agent = RunningAgent::start(server, root);
    partitions
        .delete("quiet", &DeleteParams::default())
        .await
        .unwrap();
    is_rolled_back(root).await;
    assert_eq!(settings(root), before);
    wait_for("the state leaves the report", async || {
        reported(admin).await.is_none().then_some(())
    })
    .await;
    agent.end();
    controller.end();
}

/// Sends a request for addresses to the agent, as the CNI plugin does.
pub(crate) fn ask(socket: &Path, request: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(REPLY)).unwrap();
    stream.write_all(request.to_string().as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    serde_json::from_str(&reply).unwrap()
}

async fn pods_have_addresses(admin: &Client, socket: &Path) {
    // Two pods, and no more.
    let spec = json!({ "bridge": "lan", "ranges": [{ "subnet": "10.99.0.0/30" }] });
    let network = object("Network", "small", &spec);
    let networks = api(admin, "Network");
    networks
        .create(&PostParams::default(), &network)
        .await
        .unwrap();
    let add = |pod: &str, container: &str| {
        let holder = json!({
            "namespace": "default", "pod": pod, "uid": format!("uid-of-{pod}"), "container": container,
            "interface": "net1", "configuration": "default.small",
        });
        let request = json!({ "command": "add", "network": "default/small", "holder": holder, "requested": [] });
        ask(socket, &request)
    };
    let given = |reply: &Value| reply["given"]["ips"][0][0].as_str().map(str::to_owned);
    let (first, second) = (given(&add("a", "c1")), given(&add("b", "c2")));
    assert!(
        first.is_some() && second.is_some() && first != second,
        "{first:?}, {second:?}"
    );
    let third = add("c", "c3");
    assert_eq!(third["refused"]["is_temporary"], true, "{third}");
    // A new sandbox of the same pod keeps the address.
    assert_eq!(given(&add("a", "c4")), first);
    let addresses = api(admin, "Address");
    let all = addresses.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 2);
    for container in ["c4", "c2"] {
        let request = json!({
            "command": "del", "network": "default/small", "container": container, "interface": "net1",
        });
        let reply = ask(socket, &request);
        assert!(reply["given"].is_object(), "{reply}");
    }
    let all = addresses.list(&ListParams::default()).await.unwrap();
    assert!(all.items.is_empty(), "{:?}", all.items);
}
