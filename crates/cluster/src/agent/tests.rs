// SPDX-License-Identifier: Apache-2.0
//! The agent with a fake machine and an API server of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use quietwire_host::machines;
use serde_json::{Value, json};

use super::api::Cluster;
use super::run::Agent;
use super::*;
use crate::follow::follow_once;
use crate::kubelet::KubeletPaths;
use crate::resources::{
    DataPlane, NodePartition, NodeReport, NodeReportSpec, PartitionReport, Phase,
};
use crate::runtime;
use crate::summary::of_partition;

const CONFIGURATION: &str = "kind: KubeletConfiguration\ncpuManagerPolicy: static\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nreservedSystemCPUs: \"0,3\"\n";

/// Path of the report of the node.
const REPORT: &str = "/apis/quietwire.io/v1alpha1/nodereports/n1";

/// A node with four cores, and the API server.
struct Rig {
    root: tempfile::TempDir,
    /// Names and labels of the nodes.
    nodes: Vec<(&'static str, Value)>,
    /// Paths and bodies of the patches.
    patches: Arc<Mutex<Vec<(String, Value)>>>,
    /// The report of the node.
    report: Arc<Mutex<Option<Value>>>,
    /// Verbs and resources of all requests, as a ClusterRole has them.
    requests: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Rig {
    fn new() -> Self {
        let rig = Self {
            root: tempfile::tempdir().unwrap(),
            nodes: vec![("n1", json!({ "role": "edge", "zone": "z1" }))],
            patches: Arc::default(),
            report: Arc::default(),
            requests: Arc::default(),
        };
        let machine = machines::Machine {
            cores: 4,
            ..machines::Machine::default()
        };
        machine.write(rig.root.path()).unwrap();
        rig.configure(CONFIGURATION);
        rig
    }

    fn configure(&self, configuration: &str) {
        let path = self.places().configuration;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, configuration).unwrap();
    }

    fn places(&self) -> KubeletPaths {
        let directory = self.root.path().join("var/lib/kubelet");
        KubeletPaths {
            configuration: directory.join("config.yaml"),
            cpu_state: directory.join("cpu_manager_state"),
            memory_state: directory.join("memory_manager_state"),
            pod_resources: directory.join("absent.sock"),
            device_plugins: directory.join("device-plugins"),
        }
    }

    fn client(&self) -> Client {
        let nodes = self.nodes.clone();
        let patches = Arc::clone(&self.patches);
        let report = Arc::clone(&self.report);
        let requests = Arc::clone(&self.requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (nodes, patches) = (nodes.clone(), Arc::clone(&patches));
            let report = Arc::clone(&report);
            requests.lock().unwrap().insert(permission(&request));
            // A watch ends at once, without events.
            let request_is_watch = is_watch(&request);
            async move {
                let path = request.uri().path().to_owned();
                let (status, reply) = match (request.method().clone(), path.as_str()) {
                    (Method::PATCH, _) => {
                        let octets = request.into_body().collect_bytes().await.unwrap();
                        let body: Value = serde_json::from_slice(&octets).unwrap();
                        *report.lock().unwrap() = Some(body.clone());
                        patches.lock().unwrap().push((path.clone(), body.clone()));
                        (StatusCode::OK, body)
                    }
                    (Method::GET, REPORT) => {
                        let stored = report.lock().unwrap().clone();
                        let absent = json!({
                            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404,
                            "message": "not found", "reason": "NotFound",
                        });
                        match stored {
                            Some(stored) => (StatusCode::OK, stored),
                            None => (StatusCode::NOT_FOUND, absent),
                        }
                    }
                    (Method::GET, "/apis/quietwire.io/v1alpha1/nodepartitions") => {
                        let list = json!({
                            "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartitionList",
                            "metadata": { "resourceVersion": "7" },
                            "items": [partition("edge", "u1")],
                        });
                        (StatusCode::OK, list)
                    }
                    (Method::GET, "/apis/quietwire.io/v1alpha1/dataplanes") => {
                        let list = json!({
                            "apiVersion": "quietwire.io/v1alpha1", "kind": "DataPlaneList",
                            "metadata": { "resourceVersion": "7" }, "items": [plane()],
                        });
                        (StatusCode::OK, list)
                    }
                    (Method::GET, _) => (StatusCode::OK, node(&nodes[0])),
                    (method, path) => panic!("{method} {path}"),
                };
                let text = if request_is_watch {
                    String::new()
                } else {
                    reply.to_string()
                };
                let reply = Response::builder()
                    .status(status)
                    .body(Body::from(text.into_bytes()));
                Ok::<_, Infallible>(reply.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn agent(&self) -> Agent {
        let options = AgentOptions {
            node: "n1".to_owned(),
            kubeconfig: None,
            root: self.root.path().to_owned(),
            control_socket: self.root.path().join("absent.sock"),
            places: self.places(),
            devices: None,
            exports: Exports::default(),
        };
        Agent::new(Cluster::new(self.client(), "n1".to_owned()), options)
    }

    /// Returns the report that the agent wrote last, and forgets all patches.
    fn written(&self) -> Option<NodeReportSpec> {
        let patches = std::mem::take(&mut *self.patches.lock().unwrap());
        let (path, body) = patches.into_iter().next_back()?;
        assert_eq!(path, REPORT);
        let owner = &body["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["uid"]),
            (&json!("Node"), &json!("of-n1"))
        );
        let report: NodeReport = serde_json::from_value(body).unwrap();
        Some(report.spec)
    }

    /// Returns the state of the node that the agent reported last, and forgets all patches.
    fn reported(&self) -> Option<PartitionReport> {
        self.written()?.partitions.into_iter().next()
    }

    /// Returns a partition with the summary of its nodes, none of which has reported.
    fn summarised(&self, name: &str, uid: &str) -> NodePartition {
        let mut partition = partition(name, uid);
        let nodes = self.nodes.iter();
        let nodes: BTreeMap<String, BTreeMap<String, String>> = nodes
            .map(|(name, labels)| {
                let labels = serde_json::from_value(labels.clone()).unwrap();
                ((*name).to_owned(), labels)
            })
            .collect();
        partition.status = Some(of_partition(&partition, &nodes, &[]));
        partition
    }

    /// Returns all files of the machine except those of the agent.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        collect(self.root.path(), self.root.path(), &mut files);
        files.retain(|path, _| path.starts_with("proc") || path.starts_with("sys"));
        files
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"))
}

/// Returns the verb and the resource of a request: `/api/v1/RESOURCE/NAME/SUBRESOURCE`, and the same below `/apis/GROUP/VERSION`.
fn permission(request: &Request<Body>) -> (String, String) {
    let parts: Vec<&str> = request
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let parts = if parts[0] == "api" {
        &parts[2..]
    } else {
        &parts[3..]
    };
    let verb = match *request.method() {
        Method::PATCH => "patch",
        Method::GET if is_watch(request) => "watch",
        Method::GET if parts.len() == 1 => "list",
        Method::GET => "get",
        _ => panic!("{request:?}"),
    };
    let resource = match parts {
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, sub] => format!("{resource}/{sub}"),
        _ => panic!("{parts:?}"),
    };
    (verb.to_owned(), resource)
}

/// Returns all YAML documents of a file of the package.
fn packaged(file: &str) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base");
    let text = fs::read_to_string(directory.join(file)).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

#[test]
fn the_cluster_role_has_exactly_the_verbs_of_the_requests() {
    let rig = Rig::new();
    runtime().unwrap().block_on(async {
        let (known, mut partitions) = tokio::sync::watch::channel(None::<Vec<NodePartition>>);
        let cluster = Cluster::new(rig.client(), "n1".to_owned());
        follow_once(&cluster.all(), &known).await.unwrap();
        let partitions = partitions.borrow_and_update().clone().unwrap();
        rig.agent().pass(&partitions).await.unwrap();
        let (known, mut planes) = tokio::sync::watch::channel(None::<Vec<DataPlane>>);
        follow_once(&cluster.all(), &known).await.unwrap();
        let planes = planes.borrow_and_update().clone().unwrap();
        rig.agent().pass_data_planes(&planes).await.unwrap();
    });
    let documents = packaged("rbac.yaml");
    let role = documents
        .iter()
        .find(|it| it["kind"] == "ClusterRole")
        .unwrap();
    let mut allowed = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for resource in rule["resources"].as_array().unwrap() {
            for verb in rule["verbs"].as_array().unwrap() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                allowed.insert((text(verb), text(resource)));
            }
        }
    }
    let mut needed = rig.requests.lock().unwrap().clone();
    // A patch that makes an object requires the right to create it.
    needed.insert(("create".to_owned(), "nodereports".to_owned()));
    needed.extend(crate::addresses::tests::requests());
    needed.extend(super::export::tests::requests());
    assert_eq!(needed, allowed);
}

#[test]
fn files_of_the_package_are_listed_and_agree() {
    let kustomization = &packaged("kustomization.yaml")[0];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base");
    let files: BTreeSet<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    let listed = kustomization["resources"].as_array().unwrap();
    let listed: BTreeSet<String> = listed
        .iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, files);
    let (mut accounts, mut made) = (BTreeSet::new(), BTreeSet::new());
    for file in &files {
        for document in packaged(file) {
            assert!(
                document["apiVersion"].is_string() && document["kind"].is_string(),
                "{file}"
            );
            assert!(document["metadata"]["name"].is_string(), "{file}");
            if document["kind"] == "ServiceAccount" {
                made.insert(document["metadata"]["name"].as_str().unwrap().to_owned());
            }
            let pod = &document["spec"]["template"]["spec"];
            accounts.extend(pod["serviceAccountName"].as_str().map(str::to_owned));
            for container in pod["containers"].as_array().into_iter().flatten() {
                let names = |all: &Value| -> BTreeSet<String> {
                    let all = all.as_array().into_iter().flatten();
                    all.map(|it| it["name"].as_str().unwrap().to_owned())
                        .collect()
                };
                assert_eq!(names(&container["volumeMounts"]), names(&pod["volumes"]));
            }
        }
    }
    assert_eq!(accounts, made);
    let devices = packaged("devices.yaml");
    let text = devices[0]["data"]["devices.toml"].as_str().unwrap();
    crate::devices::DevicesConfig::parse(text).unwrap();
    // The example in the comments is valid as well.
    let example: String = text
        .lines()
        .map(|line| format!("{}\n", line.trim_start_matches("# ")))
        .collect();
    assert_eq!(
        crate::devices::DevicesConfig::parse(&example)
            .unwrap()
            .resources
            .len(),
        1
    );
}

fn node((name, labels): &(&'static str, Value)) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": { "name": name, "labels": labels, "uid": format!("of-{name}") },
    })
}

fn collect(root: &Path, directory: &Path, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, into);
        } else {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap_or_default();
            into.insert(name, text.trim().to_owned());
        }
    }
}

fn partition(name: &str, uid: &str) -> NodePartition {
    let value = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
        "metadata": { "name": name, "uid": uid, "generation": 1 },
        "spec": {
            "nodeSelector": { "role": "edge" },
            "request": { "forwarding": { "cpus": "3" }, "machine": { "bootIsolation": false } },
            "rollout": { "failureDomain": "zone" },
        },
    });
    serde_json::from_value(value).unwrap()
}

fn plane() -> DataPlane {
    let value = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "DataPlane",
        "metadata": { "name": "edge", "uid": "u9", "generation": 3 },
        "spec": { "nodeSelector": { "role": "edge" }, "bridges": [{ "name": "lan" }] },
    });
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_switch_that_does_not_run_is_reported() {
    let rig = Rig::new();
    runtime().unwrap().block_on(async {
        rig.agent().pass_data_planes(&[plane()]).await.unwrap();
        let state = rig.written().unwrap().data_planes.remove(0);
        assert_eq!(
            (state.data_plane.as_str(), state.uid.as_str()),
            ("edge", "u9")
        );
        assert_eq!(state.observed_generation, 3);
        assert_eq!(state.rejected[0].object, "switch");
        let message = &state.rejected[0].message;
        assert!(message.contains("absent.sock"), "{message}");
        assert_eq!(state.switch_version, None);
        // Another agent of the node reads the report, which has the state already.
        rig.agent().pass_data_planes(&[plane()]).await.unwrap();
        assert_eq!(rig.written(), None);
        // No resource, nothing made: the switch is not asked, and the state is removed.
        rig.agent().pass_data_planes(&[]).await.unwrap();
        assert_eq!(rig.written(), Some(NodeReportSpec::default()));
        rig.agent().pass_data_planes(&[]).await.unwrap();
        assert_eq!(rig.written(), None);
    });
}

#[test]
fn a_partition_is_applied_and_rolled_back_when_its_resource_is_deleted() {
    let rig = Rig::new();
    let before = rig.files();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        let known = rig.summarised("edge", "u1");
        agent.pass(std::slice::from_ref(&known)).await.unwrap();
        let status = rig.reported().unwrap();
        assert!(
            matches!(
                status.phase,
                Phase::Applied | Phase::PendingReboot | Phase::Verified
            ),
            "{status:?}"
        );
        assert_eq!(
            (status.partition.as_str(), status.uid.as_str()),
            ("edge", "u1")
        );
        assert_eq!(status.domain, "z1");
        assert_eq!(status.observed_generation, 1);
        assert_eq!(
            status.groups.get("forwarding").map(String::as_str),
            Some("3")
        );
        let governor = "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor";
        assert_eq!(rig.files()[governor], "performance");

        // The second pass finds nothing to do.
        agent.pass(std::slice::from_ref(&known)).await.unwrap();
        assert_eq!(rig.reported(), None);

        fs::write(rig.root.path().join(governor), "powersave").unwrap();
        agent.pass(std::slice::from_ref(&known)).await.unwrap();
        let drifted = rig.reported().unwrap();
        assert_eq!(drifted.phase, Phase::Drifted, "{drifted:?}");
        assert!(
            drifted.failed_checks[0].file.contains("scaling_governor"),
            "{drifted:?}"
        );
        fs::write(rig.root.path().join(governor), "performance").unwrap();

        // An agent that was started again knows the partition of the former one.
        let mut agent = rig.agent();
        agent.pass(&[]).await.unwrap();
        assert_eq!(rig.files(), before);
        assert_eq!(rig.written(), Some(NodeReportSpec::default()));
        assert!(
            !rig.root
                .path()
                .join("run/quietwire/agent/partition.json")
                .exists()
        );
    });
}

#[test]
fn a_plan_that_collides_with_kubelet_changes_nothing() {
    let rig = Rig::new();
    let before = rig.files();
    rig.configure("kind: KubeletConfiguration\nreservedSystemCPUs: \"0\"\n");
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_eq!(status.phase, Phase::Refused);
        assert_eq!(status.kubelet_settings.len(), 3, "{status:?}");
        assert!(status.kubelet_settings[0].starts_with("reservedSystemCPUs: '0,3'"), "{status:?}");
        assert_eq!(rig.files(), before);

        // A container has the CPU.
        rig.configure(CONFIGURATION);
        let state = r#"{"policyName":"static","defaultCpuSet":"1-2","entries":{"7f1c":{"app":"3"}}}"#;
        fs::write(rig.places().cpu_state, state).unwrap();
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_eq!(
            status.message,
            "CPUs 3 are of group 'forwarding' of NodePartition 'edge' and of container 'app' of the pod with UID 7f1c"
        );
        assert_eq!(rig.files(), before);
    });
}

#[test]
fn a_node_waits_for_nodes_of_earlier_domains() {
    let mut rig = Rig::new();
    rig.nodes
        .push(("n0", json!({ "role": "edge", "zone": "a0" })));
    let before = rig.files();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_eq!(status.phase, Phase::Planned);
        assert_eq!(status.message, "waits for node 'n0' of domain 'a0'");
        assert_eq!(rig.files(), before);
    });
}

#[test]
fn a_second_resource_for_the_same_node_is_refused() {
    let rig = Rig::new();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        let both = [rig.summarised("edge", "u2"), rig.summarised("core", "u1")];
        agent.pass(&both).await.unwrap();
        let states = rig.written().unwrap().partitions;
        let names: Vec<&str> = states.iter().map(|it| it.partition.as_str()).collect();
        assert_eq!(names, ["core", "edge"]);
        assert_ne!(states[0].phase, Phase::Refused);
        assert_eq!(states[1].phase, Phase::Refused);
        let message = "NodePartition 'core' and NodePartition 'edge' both select node 'n1'";
        assert_eq!(states[1].message, message);
    });
}

#[test]
fn a_node_waits_for_the_controller_and_then_changes() {
    let rig = Rig::new();
    let before = rig.files();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        agent.pass(&[partition("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_eq!(status.phase, Phase::Planned);
        assert_eq!(
            status.message,
            "waits for the controller to summarise generation 1"
        );
        assert_eq!(rig.files(), before);
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_ne!(status.phase, Phase::Planned, "{status:?}");
        assert_ne!(rig.files(), before);
    });
}

#[test]
fn states_of_former_resources_leave_the_report() {
    let rig = Rig::new();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        assert_eq!(rig.reported().unwrap().uid, "u1");
        // It was deleted, and made again under the same name.
        agent.pass(&[rig.summarised("edge", "u2")]).await.unwrap();
        let states = rig.written().unwrap().partitions;
        assert_eq!((states.len(), states[0].uid.as_str()), (1, "u2"));
        let mut elsewhere = rig.summarised("edge", "u2");
        elsewhere.spec.node_selector = [("role".to_owned(), "core".to_owned())].into();
        agent.pass(&[elsewhere]).await.unwrap();
        assert_eq!(rig.written(), Some(NodeReportSpec::default()));
    });
}

#[test]
fn a_partition_that_was_applied_by_hand_is_left_alone() {
    let rig = Rig::new();
    let state = rig.root.path().join("run/quietwire/partition");
    fs::create_dir_all(&state).unwrap();
    let plan = quietwire_host::partition::Plan::default();
    fs::write(
        state.join("plan.json"),
        serde_json::to_string(&plan).unwrap(),
    )
    .unwrap();
    let before = rig.files();
    runtime().unwrap().block_on(async {
        let mut agent = rig.agent();
        agent.pass(&[rig.summarised("edge", "u1")]).await.unwrap();
        let status = rig.reported().unwrap();
        assert_eq!(status.phase, Phase::Failed);
        assert!(status.message.contains("partition rollback"), "{status:?}");
        assert_eq!(rig.files(), before);
        agent.pass(&[]).await.unwrap();
        assert!(state.join("plan.json").exists());
    });
}
