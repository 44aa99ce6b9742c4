// SPDX-License-Identifier: Apache-2.0
//! Objects of the agent for other programs: CPUs, memory and devices of each NUMA node as a `NodeResourceTopology` for schedulers, and
//! features of the machine as a `NodeFeature` for Node Feature Discovery. Both have the name of the node, and are removed with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use quietwire_host::inventory::Inventory;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::topology::{self, ZoneDevices};
use crate::devices::Resource;
use crate::follow::bounded;
use crate::kubelet::{Kubelet, KubeletPaths};
use crate::problem::Problem;

/// Interval at which kubelet is read.
const INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the machine is read, and objects are written that have not changed: others may have changed or deleted them.
const RESTORE: Duration = Duration::from_secs(600);

/// Objects that the agent writes for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// `NodeResourceTopology` (topology.node.k8s.io/v1alpha2).
    pub topology: bool,
    /// `NodeFeature` (nfd.k8s-sigs.io/v1alpha1).
    pub features: bool,
}

impl Exports {
    /// Returns whether there is nothing to write.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Returns the resource of a kind.
fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Returns features and labels of a `NodeFeature`. Unknown ones are left out.
fn features(inventory: &Inventory) -> Value {
    let mut elements = BTreeMap::new();
    let mut note = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            elements.insert(name.to_owned(), value);
        }
    };
    let nodes = inventory.nodes.len();
    note("numa-nodes", (nodes > 0).then(|| nodes.to_string()));
    note("cores", inventory.cores.map(|cores| cores.to_string()));
    note(
        "smt",
        inventory.smt_active.map(|is_active| is_active.to_string()),
    );
    note(
        "cgroup-version",
        inventory.cgroup_version.map(|version| version.to_string()),
    );
    note("network-cards", Some(inventory.nics.len().to_string()));
    let has_allocation = !inventory.rdt.caches.is_empty();
    note("cache-allocation", Some(has_allocation.to_string()));
    let labels: BTreeMap<String, &String> = elements
        .iter()
        .map(|(name, value)| (format!("quietwire.io/{name}"), value))
        .collect();
    json!({ "spec": {
        "features": {
            "flags": {}, "instances": {},
            "attributes": { "quietwire.machine": { "elements": elements } },
        },
        "labels": labels,
    } })
}

/// An object that was written, and when.
type Written = BTreeMap<String, (Value, Instant)>;

/// Writes the topology and the features of the node for other programs.
pub(super) struct Exporter {
    client: Client,
    node: String,
    exports: Exports,
    written: Written,
}

impl Exporter {
    pub(super) fn new(client: Client, node: String, exports: Exports) -> Self {
        Self {
            client,
            node,
            exports,
            written: Written::new(),
        }
    }

    /// Writes the objects that have changed, or that were written long ago. `devices` are those of the device plugin.
    ///
    /// # Errors
    /// Those of the requests. Others than the failed object are written.
    pub(super) async fn pass(
        &mut self,
        inventory: &Inventory,
        kubelet: Option<&Kubelet>,
        devices: &[ZoneDevices],
    ) -> kube::Result<()> {
        let mut done = Ok(());
        if self.exports.topology
            && let Some(kubelet) = kubelet
            && let Some(topology) = topology::topology(inventory, kubelet, devices)
        {
            let (group, plural) = ("topology.node.k8s.io", "noderesourcetopologies");
            let resource = resource(group, "v1alpha2", "NodeResourceTopology", plural);
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            done = self.write(&resource, &all, &json!({}), topology).await;
        }
        if self.exports.features {
            let plural = "nodefeatures";
            let resource = resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", plural);
            let namespace = self.client.default_namespace().to_owned();
            let all: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &namespace, &resource);
            let labels = json!({ "nfd.node.kubernetes.io/node-name": self.node });
            let written = self.write(&resource, &all, &labels, features(inventory));
            done = done.and(written.await);
        }
        done
    }

    /// Writes an object (verbs `create` and `patch`), with the node as its owner (verb `get` of `nodes`).
    async fn write(
        &mut self,
        resource: &ApiResource,
        all: &Api<DynamicObject>,
        labels: &Value,
        content: Value,
    ) -> kube::Result<()> {
        let before = self.written.get(&resource.plural);
        if before.is_some_and(|(before, at)| *before == content && at.elapsed() < RESTORE) {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = bounded(nodes.get_metadata(&self.node)).await?;
        let mut object = content.clone();
        let head = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {
                "name": self.node, "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.node,
                    "uid": node.metadata.uid.unwrap_or_default(),
                }],
            },
        });
        // Both are objects.
        if let (Value::Object(object), Value::Object(head)) = (&mut object, head) {
            object.extend(head);
        }
        let parameters = PatchParams::apply("quietwire-agent").force();
        bounded(all.patch(&self.node, &parameters, &Patch::Apply(object))).await?;
        let now = Instant::now();
        self.written.insert(resource.plural.clone(), (content, now));
        Ok(())
    }
}

/// Writes the topology and the features of the node for other programs until `ended` becomes true. `resources` are those of the device plugin.
pub(super) async fn serve(
    mut exporter: Exporter,
    root: PathBuf,
    places: KubeletPaths,
    resources: Vec<Resource>,
    mut ended: watch::Receiver<bool>,
) {
    let mut inventory: Option<(Inventory, Instant)> = None;
    let mut problem = Problem::default();
    while !*ended.borrow() {
        let is_old = inventory
            .as_ref()
            .is_none_or(|(_, at)| at.elapsed() >= RESTORE);
        if is_old {
            let root = root.clone();
            let read = tokio::task::spawn_blocking(move || Inventory::read(&root)).await;
            inventory = match read {
                Ok(read) => Some((read, Instant::now())),
                Err(error) => {
                    tracing::error!("reading the machine: {error}");
                    None
                }
            };
        }
        let kubelet = Kubelet::observe(&places).await;
        let mut done = Ok(());
        if let Some((inventory, _)) = &inventory {
            let known = kubelet.as_ref().ok();
            let devices = count_devices(exporter.exports, &resources, known).await;
            let passed = exporter.pass(inventory, known, &devices).await;
            done = passed.map_err(|error| error.to_string());
        }
        if exporter.exports.topology {
            done = done.and(kubelet.map(drop));
        }
        problem.note("node topology and features", done);
        tokio::select! {
            _ = ended.changed() => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Counts the devices of each NUMA node, outside of the thread of the runtime. Empty if kubelet does not report the devices of containers.
async fn count_devices(
    exports: Exports,
    resources: &[Resource],
    kubelet: Option<&Kubelet>,
) -> Vec<ZoneDevices> {
    let used = kubelet.and_then(|kubelet| kubelet.devices.clone());
    let Some(used) = used.filter(|_| exports.topology && !resources.is_empty()) else {
        return Vec::new();
    };
    let resources = resources.to_vec();
    let count = move || topology::count(&resources, &used);
    match tokio::task::spawn_blocking(count).await {
        Ok(devices) => devices,
        Err(error) => {
            tracing::error!("counting devices: {error}");
            Vec::new()
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use quietwire_host::machines;

    use super::*;
    use crate::kubelet::{Claim, Configuration};
    use crate::runtime;
    use crate::simulated::Simulated;

    /// Returns a machine of two NUMA nodes with four CPUs each.
    pub(crate) fn inventory() -> Inventory {
        let root = tempfile::tempdir().unwrap();
        let machine = machines::Machine {
            packages: 2,
            cores: 4,
            ..machines::Machine::default()
        };
        machine.write(root.path()).unwrap();
        Inventory::read(root.path())
    }

    pub(crate) fn kubelet(claimed: &str) -> Kubelet {
        Kubelet {
            configuration: Configuration {
                reserved: "0,4-5".parse().unwrap(),
                topology_manager_policy: "single-numa-node".to_owned(),
                topology_manager_scope: "container".to_owned(),
                ..Configuration::default()
            },
            claims: vec![Claim {
                owner: "a pod".to_owned(),
                cpus: claimed.parse().unwrap(),
            }],
            ..Kubelet::default()
        }
    }

    fn server() -> Simulated {
        let server = Simulated::default();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "of-n1" },
        });
        server.put("nodes", &node);
        server
    }

    const ALL: Exports = Exports {
        topology: true,
        features: true,
    };

    /// Returns the verbs of the requests and their resources, as a role has them.
    pub(crate) fn requests() -> BTreeSet<(String, String)> {
        let server = server();
        let mut exporter = Exporter::new(server.client(), "n1".to_owned(), ALL);
        runtime().unwrap().block_on(async {
            let done = exporter.pass(&inventory(), Some(&kubelet("2")), &[]).await;
            done.unwrap();
        });
        let mut requests: BTreeSet<(String, String)> = server.requests().into_iter().collect();
        // A patch that makes an object requires the right to create it.
        for plural in ["noderesourcetopologies", "nodefeatures"] {
            requests.insert(("create".to_owned(), plural.to_owned()));
        }
        requests
    }

    #[test]
    fn unknown_features_are_left_out() {
        let known = features(&inventory());
        let labels = &known["spec"]["labels"];
        assert_eq!(labels["quietwire.io/numa-nodes"], "2");
        assert_eq!(labels["quietwire.io/cores"], "8");
        let elements = &known["spec"]["features"]["attributes"]["quietwire.machine"]["elements"];
        assert_eq!(elements["numa-nodes"], "2");
        let unknown = features(&Inventory::default());
        let labels = unknown["spec"]["labels"].as_object().unwrap();
        let names: Vec<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "quietwire.io/cache-allocation",
                "quietwire.io/network-cards"
            ]
        );
    }

    #[test]
    fn objects_are_written_when_they_change() {
        let server = server();
        let mut exporter = Exporter::new(server.client(), "n1".to_owned(), ALL);
        let inventory = inventory();
        runtime().unwrap().block_on(async {
            exporter
                .pass(&inventory, Some(&kubelet("2")), &[])
                .await
                .unwrap();
            let made = server.all("noderesourcetopologies");
            assert_eq!(made[0]["metadata"]["name"], "n1");
            assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "of-n1");
            let labels = &server.all("nodefeatures")[0]["metadata"]["labels"];
            assert_eq!(labels["nfd.node.kubernetes.io/node-name"], "n1");
            server.requests();

            exporter
                .pass(&inventory, Some(&kubelet("2")), &[])
                .await
                .unwrap();
            // Kubelet does not reply: what was written stays.
            exporter.pass(&inventory, None, &[]).await.unwrap();
            assert!(server.requests().is_empty());

            exporter
                .pass(&inventory, Some(&kubelet("2-3")), &[])
                .await
                .unwrap();
            let patch = ("patch".to_owned(), "noderesourcetopologies".to_owned());
            assert_eq!(server.requests().last(), Some(&patch));

            let mut none = Exporter::new(server.client(), "n1".to_owned(), Exports::default());
            none.pass(&inventory, Some(&kubelet("2")), &[])
                .await
                .unwrap();
            assert!(server.requests().is_empty());
        });
    }
}
