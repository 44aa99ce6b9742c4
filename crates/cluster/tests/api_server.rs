// SPDX-License-Identifier: Apache-2.0
//! The custom resources against a real API server with etcd: it accepts the definitions, refuses bad resources by their CEL rules, and gives
//! the agent the rights of its ClusterRole and no others. Agents partition a node that is made of files. `make test-cluster` builds the
//! server and runs this.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "api_server/faults.rs"]
mod faults;
#[path = "api_server/networks.rs"]
mod networks;
#[path = "api_server/node.rs"]
mod node;
#[path = "api_server/rights.rs"]
mod rights;
#[path = "api_server/server.rs"]
mod server;
#[path = "api_server/versions.rs"]
mod versions;
#[path = "api_server/webhook.rs"]
mod webhook;

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, Resource, ResourceExt as _};
use quietwire_cluster::resources::{
    Address, DataPlane, Network, NodePartition, NodeReport, NodeReportSpec, definitions,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use server::{Server, User, wait_for};

/// Time for all tests: none of their requests may wait longer.
const ALL: Duration = Duration::from_secs(1200);

/// Creates a definition, and waits until its resource is served.
async fn define(admin: &Client, definition: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let created = api.create(&PostParams::default(), definition).await;
    let name = created.unwrap_or_else(|error| panic!("{error}")).name_any();
    let is_established = |definition: &CustomResourceDefinition| {
        let conditions = definition
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it.type_ == "Established" && it.status == "True")
    };
    wait_for("the definition is established", async || {
        is_established(&api.get(&name).await.unwrap()).then_some(())
    })
    .await;
}

async fn install(admin: &Client) {
    for definition in definitions() {
        define(admin, &definition).await;
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    match kind {
        "NodePartition" => Api::all_with(client.clone(), &ApiResource::erase::<NodePartition>(&())),
        "DataPlane" => Api::all_with(client.clone(), &ApiResource::erase::<DataPlane>(&())),
        "NodeReport" => Api::all_with(client.clone(), &ApiResource::erase::<NodeReport>(&())),
        "Address" => {
            Api::default_namespaced_with(client.clone(), &ApiResource::erase::<Address>(&()))
        }
        _ => Api::default_namespaced_with(client.clone(), &ApiResource::erase::<Network>(&())),
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": kind,
        "metadata": { "name": name }, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// Specifications that the API server accepts.
fn good() -> Vec<(&'static str, Value)> {
    let selector = json!({ "role": "edge" });
    vec![
        ("NodePartition", json!({ "nodeSelector": selector })),
        (
            "NodePartition",
            json!({ "nodeSelector": selector, "request": {
                "forwarding": { "cpus": "2-3" }, "host": { "cpus": 1 },
                "guests": [{ "name": "db", "cpus": 2 }], "nics": [{ "pci": "0000:17:00.0" }],
            }}),
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": selector, "bridges": [{ "name": "lan" }],
                "ports": [{ "name": "a", "uri": "null:", "bridge": "lan", "vlan": 5 }] }),
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": selector, "forwardingCpus": "2-3,8", "bridges": [{ "name": "lan" }],
                "ports": [{ "name": "a", "uri": "null:" }], "vrfs": [{ "name": "blue", "kernelTable": 7 }],
                "interfaces": [
                    { "name": "a0", "port": "a", "vlan": 5, "addresses": ["192.0.2.1/24"], "vrf": "blue" },
                    { "name": "lan0", "bridge": "lan", "mtu": 9000 },
                ] }),
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": selector, "bridges": [{ "name": "lan" }], "ports": [{ "name": "a", "uri": "af-xdp:eth0" }],
                "vrfs": [{ "name": "blue" }], "interfaces": [{ "name": "lan0", "bridge": "lan", "addresses": ["192.0.2.1/24"] }],
                "routes": [
                    { "prefix": "10.0.0.0/8", "via": [{ "address": "192.0.2.9" }] },
                    { "prefix": "fd00::/8", "vrf": "blue", "kind": "blackhole" },
                    { "prefix": "10.9.0.0/16", "vrf": "main", "kind": "unicast", "via": [{ "interface": "lan0" }] },
                ],
                "nats": [{ "name": "wan", "interface": "lan0", "publish": [{ "protocol": "tcp", "port": 80, "to": "10.0.0.5:80" }] }],
                "loadBalancers": [{ "name": "web", "address": "192.0.2.80", "port": 80, "backends": [{ "to": "10.0.0.5:80" }] }],
                "steering": [
                    { "name": "dns", "port": "a", "to": "switch", "protocol": "udp", "destinationPort": "53" },
                    { "name": "guest", "port": "a", "to": "virtual-function", "virtualFunction": 1, "vlan": 7 },
                ] }),
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": selector, "connections": { "maxEntries": 100000, "maxHalfOpen": 70000, "newShare": 30, "helpers": ["ftp"],
                "timeouts": { "tcpEstablished": 600 }, "zones": [{ "name": "red", "ports": ["a"], "maxEntries": 10 }] } }),
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": selector, "connections": { "enabled": false },
                "loadBalancers": [{ "name": "web", "address": "192.0.2.80", "port": 80, "directReturn": true }] }),
        ),
        (
            "Network",
            json!({ "bridge": "lan", "vlan": 7, "vrf": "blue", "port": "tap",
                "ranges": [{ "subnet": "10.66.0.0/24", "first": "10.66.0.10", "gateway": "10.66.0.1" }, { "subnet": "fd00:66::/64" }],
                "routes": [{ "destination": "0.0.0.0/0" }, { "destination": "fd00::/8", "gateway": "fd00:66::1" }],
                "reservations": [{ "address": "10.66.0.20", "pod": "db", "mac": "02:00:00:00:00:01" }] }),
        ),
        (
            "Network",
            json!({ "bridge": "lan", "port": "vhost-user", "resource": "vhost-user" }),
        ),
        (
            "Network",
            json!({ "port": "host-device", "resource": "fast-nic", "ranges": [{ "subnet": "10.67.0.0/24" }] }),
        ),
    ]
}

/// Specifications that it refuses, with a part of the message.
fn bad() -> Vec<(&'static str, Value, &'static str)> {
    let partition =
        |request: Value| json!({ "nodeSelector": { "role": "edge" }, "request": request });
    let plane = |ports: Value| json!({ "nodeSelector": { "role": "edge" }, "ports": ports });
    let routed = |interface: Value, vrfs: Value| {
        json!({ "nodeSelector": { "role": "edge" }, "bridges": [{ "name": "lan" }],
            "ports": [{ "name": "a", "uri": "null:" }, { "name": "member", "uri": "null:", "bridge": "lan" }],
            "interfaces": [interface], "vrfs": vrfs })
    };
    let services = |key: &str, service: Value| {
        json!({ "nodeSelector": { "role": "edge" }, "bridges": [{ "name": "lan" }], "ports": [{ "name": "a", "uri": "null:" }],
            "interfaces": [{ "name": "lan0", "bridge": "lan" }], key: [service] })
    };
    let tracked = |connections: Value| json!({ "nodeSelector": { "role": "edge" }, "connections": connections });
    let range = |range: Value| json!({ "bridge": "lan", "ranges": [range] });
    let routes = |route: Value| json!({ "bridge": "lan", "ranges": [{ "subnet": "10.66.0.0/24" }], "routes": [route] });
    vec![
        (
            "NodePartition",
            json!({ "nodeSelector": {} }),
            "nodeSelector is empty",
        ),
        (
            "NodePartition",
            partition(json!({ "forwarding": { "cachePercent": 0 } })),
            "greater than or equal to 1",
        ),
        (
            "NodePartition",
            partition(
                json!({ "host": { "cachePercent": 60 }, "forwarding": { "cachePercent": 60 } }),
            ),
            "exceed 100",
        ),
        (
            "NodePartition",
            partition(json!({ "guests": [{ "name": "a" }], "neighbours": [{ "name": "a" }] })),
            "have the same name",
        ),
        (
            "NodePartition",
            partition(json!({ "guests": [{ "name": "a" }, { "name": "a" }] })),
            "Duplicate value",
        ),
        (
            "NodePartition",
            partition(json!({ "guests": [{ "name": "a b" }] })),
            "should match",
        ),
        (
            "NodePartition",
            partition(json!({ "nics": [{ "pci": "17:00" }] })),
            "should match",
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": {} }),
            "nodeSelector is empty",
        ),
        (
            "DataPlane",
            plane(json!([{ "name": "a", "uri": "null:", "bridge": "lan" }])),
            "bridges does not contain",
        ),
        (
            "DataPlane",
            plane(json!([{ "name": "a", "uri": "null:", "vlan": 5 }])),
            "vlan requires bridge",
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": { "role": "edge" }, "forwardingCpus": "two" }),
            "should match",
        ),
        (
            "DataPlane",
            routed(json!({ "name": "a0" }), json!([])),
            "requires either port or bridge",
        ),
        (
            "DataPlane",
            routed(
                json!({ "name": "a0", "port": "a", "bridge": "lan" }),
                json!([]),
            ),
            "requires either port or bridge",
        ),
        (
            "DataPlane",
            routed(json!({ "name": "a0", "port": "b" }), json!([])),
            "ports does not contain, or that is in a bridge",
        ),
        (
            "DataPlane",
            routed(json!({ "name": "a0", "port": "member" }), json!([])),
            "ports does not contain, or that is in a bridge",
        ),
        (
            "DataPlane",
            routed(json!({ "name": "a0", "bridge": "other" }), json!([])),
            "an interface names a bridge that bridges does not contain",
        ),
        (
            "DataPlane",
            routed(
                json!({ "name": "a0", "port": "a", "vrf": "blue" }),
                json!([]),
            ),
            "an interface names a VRF that vrfs does not contain",
        ),
        (
            "DataPlane",
            routed(
                json!({ "name": "a0", "port": "a" }),
                json!([{ "name": "main" }]),
            ),
            "the VRF main always exists",
        ),
        (
            "DataPlane",
            plane(json!([{ "name": "a", "uri": "no uri" }])),
            "should match",
        ),
        (
            "DataPlane",
            services("routes", json!({ "prefix": "10.0.0.0" })),
            "prefix is not a prefix",
        ),
        (
            "DataPlane",
            services("routes", json!({ "prefix": "10.0.0.0/8" })),
            "a unicast route requires via",
        ),
        (
            "DataPlane",
            services(
                "routes",
                json!({ "prefix": "10.0.0.0/8", "kind": "blackhole", "via": [{ "interface": "lan0" }] }),
            ),
            "routes of other kinds have none",
        ),
        (
            "DataPlane",
            services(
                "routes",
                json!({ "prefix": "10.0.0.0/8", "via": [{ "weight": 2 }] }),
            ),
            "a next hop requires address, interface or both",
        ),
        (
            "DataPlane",
            services(
                "routes",
                json!({ "prefix": "10.0.0.0/8", "vrf": "blue", "kind": "prohibit" }),
            ),
            "a route names a VRF that vrfs does not contain",
        ),
        (
            "DataPlane",
            services("nats", json!({ "name": "wan", "interface": "other" })),
            "a NAT names an interface that interfaces does not contain",
        ),
        (
            "DataPlane",
            services(
                "steering",
                json!({ "name": "dns", "port": "b", "to": "kernel" }),
            ),
            "a steering rule names a port that ports does not contain",
        ),
        (
            "DataPlane",
            services(
                "steering",
                json!({ "name": "dns", "port": "a", "to": "virtual-function" }),
            ),
            "which requires it",
        ),
        (
            "DataPlane",
            services(
                "loadBalancers",
                json!({ "name": "web", "address": "192.0.2.80", "port": 0 }),
            ),
            "greater than or equal to 1",
        ),
        (
            "DataPlane",
            tracked(json!({ "maxHalfOpen": 65537 })),
            "maxHalfOpen exceeds maxEntries",
        ),
        (
            "DataPlane",
            tracked(json!({ "maxEntries": 10, "maxPerSource": 11 })),
            "maxPerSource exceeds maxEntries",
        ),
        (
            "DataPlane",
            tracked(json!({ "maxEntries": 10, "maxHalfOpenPerSource": 11 })),
            "maxHalfOpenPerSource exceeds maxEntries",
        ),
        (
            "DataPlane",
            tracked(
                json!({ "maxEntries": 10, "zones": [{ "name": "red", "ports": [], "maxEntries": 11 }] }),
            ),
            "of a zone exceeds that of all",
        ),
        (
            "DataPlane",
            tracked(json!({ "timeouts": { "tcpClose": 0 } })),
            "greater than or equal to 1",
        ),
        (
            "DataPlane",
            tracked(json!({ "newShare": 101 })),
            "less than or equal to 100",
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": { "role": "edge" }, "connections": {},
                "loadBalancers": [{ "name": "web", "address": "192.0.2.80", "port": 80, "directReturn": true }] }),
            "load balancers with directReturn",
        ),
        (
            "DataPlane",
            json!({ "nodeSelector": { "role": "edge" }, "connections": {}, "bridges": [{ "name": "lan" }],
                "interfaces": [{ "name": "lan0", "bridge": "lan" }],
                "nats": [{ "name": "wan", "interface": "lan0", "nat64": { "prefix": "64:ff9b::/96" } }] }),
            "does not follow nat64",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.0/33" })),
            "subnet is not a prefix",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.1/24" })),
            "bits beyond its prefix",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.0/24", "first": "10.0.1.1" })),
            "first is not in subnet",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.0/24", "last": "x" })),
            "last is not in subnet",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.0/24", "gateway": "fd00::1" })),
            "gateway is not in subnet",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "reservations": [{ "address": "10.0.0.9", "pod": "a" }] }),
            "a reservation is in no subnet",
        ),
        (
            "Network",
            routes(json!({ "destination": "10.0.0.0" })),
            "destination is not a prefix",
        ),
        (
            "Network",
            routes(json!({ "destination": "10.0.0.0/8", "gateway": "x" })),
            "gateway is no IP address",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "routes": [{ "destination": "10.0.0.0/8" }] }),
            "routes require ranges",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "vlan": 4095 }),
            "less than or equal to 4094",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "port": "af-packet" }),
            "Unsupported value",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "port": "memif" }),
            "requires resource",
        ),
        (
            "Network",
            json!({ "bridge": "lan", "port": "memif", "resource": "memif", "mtu": 1400 }),
            "have an mtu",
        ),
        ("Network", json!({ "port": "tap" }), "bridge is required"),
        (
            "Network",
            json!({ "bridge": "lan", "port": "host-device", "resource": "fast-nic" }),
            "host-device have none",
        ),
        (
            "Network",
            json!({ "port": "host-device" }),
            "requires resource",
        ),
        (
            "Network",
            json!({ "port": "host-device", "resource": "fast-nic", "vlan": 7 }),
            "vlan requires bridge",
        ),
        (
            "Network",
            json!({ "port": "host-device", "resource": "fast-nic", "vrf": "blue" }),
            "vrf requires bridge",
        ),
    ]
}

async fn accepts_the_good_and_refuses_the_bad(admin: &Client) {
    for (number, (kind, spec)) in good().into_iter().enumerate() {
        let created = api(admin, kind)
            .create(
                &PostParams::default(),
                &object(kind, &format!("good-{number}"), &spec),
            )
            .await;
        assert!(created.is_ok(), "{kind} {spec}: {created:?}");
    }
    for (number, (kind, spec, message)) in bad().into_iter().enumerate() {
        let created = api(admin, kind)
            .create(
                &PostParams::default(),
                &object(kind, &format!("bad-{number}"), &spec),
            )
            .await;
        let Err(kube::Error::Api(status)) = created else {
            panic!("{kind} {spec}: {created:?}");
        };
        assert!(
            status.message.contains(message),
            "{kind} {spec}: {}",
            status.message
        );
    }
}

/// Returns whether the API server refused a request for lack of rights.
fn is_forbidden<T: std::fmt::Debug>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

/// Returns the objects of a kind in a file of the package.
fn packaged<K: DeserializeOwned>(file: &str, kind: &str) -> Vec<K> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base");
    let text = fs::read_to_string(directory.join(file)).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let of_kind = documents.into_iter().filter(|it| it["kind"] == kind);
    let objects: Vec<K> = of_kind
        .map(|it| serde_json::from_value(it).unwrap())
        .collect();
    assert!(!objects.is_empty(), "{file} has no {kind}");
    objects
}

/// Creates the objects of a kind in a file of the package.
async fn create<K>(admin: &Client, file: &str, kind: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let api: Api<K> = Api::all(admin.clone());
    for object in packaged::<K>(file, kind) {
        let created = api.create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// The report of a node, as its agent writes it.
fn report(node: &str, phase: &str) -> Patch<Value> {
    Patch::Apply(json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodeReport", "metadata": { "name": node },
        "spec": { "partitions": [{ "partition": "good-0", "phase": phase }] },
    }))
}

fn manager() -> PatchParams {
    PatchParams::apply("quietwire-agent").force()
}

async fn gives_the_agent_its_rights_only(server: &Server, admin: &Client) {
    create::<ClusterRole>(admin, "rbac.yaml", "ClusterRole").await;
    create::<ClusterRoleBinding>(admin, "rbac.yaml", "ClusterRoleBinding").await;
    let agent = server.client(User::Agent("n1")).await;
    let partitions = api(&agent, "NodePartition");
    wait_for("the agent may list", async || {
        let listed = partitions.list(&ListParams::default()).await;
        (!is_forbidden(&listed)).then_some(())
    })
    .await;
    // Each agent writes the report of its node.
    for node in ["n1", "n2"] {
        let of_node = api(&server.client(User::Agent(node)).await, "NodeReport");
        let patched = of_node
            .patch(node, &manager(), &report(node, "verified"))
            .await;
        patched.unwrap();
    }
    let both = api(admin, "NodeReport")
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(both.items.len(), 2, "{both:?}");
    let status = Patch::Apply(json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition", "metadata": { "name": "good-0" },
        "status": { "selected": 7 },
    }));
    let patched = partitions.patch_status("good-0", &manager(), &status).await;
    assert!(is_forbidden(&patched), "{patched:?}");

    let spec = json!({ "nodeSelector": { "role": "edge" } });
    let other = object("NodePartition", "other", &spec);
    let created = partitions.create(&PostParams::default(), &other).await;
    assert!(is_forbidden(&created), "{created:?}");
    let pods: Api<Pod> = Api::all(agent.clone());
    assert!(is_forbidden(&pods.list(&ListParams::default()).await));
    let nodes: Api<Node> = Api::all(agent.clone());
    let listed = nodes.list(&ListParams::default()).await;
    assert!(is_forbidden(&listed), "{listed:?}");
    let found = nodes.get_opt("n1").await;
    assert!(found.is_ok(), "{found:?}");
    let deleted = nodes.delete("n1", &DeleteParams::default()).await;
    assert!(is_forbidden(&deleted));
}

async fn keeps_an_agent_to_the_report_of_its_node(server: &Server, admin: &Client) {
    create::<ValidatingAdmissionPolicy>(admin, "policy.yaml", "ValidatingAdmissionPolicy").await;
    let binding = "ValidatingAdmissionPolicyBinding";
    create::<ValidatingAdmissionPolicyBinding>(admin, "policy.yaml", binding).await;
    let reports = api(&server.client(User::Agent("n1")).await, "NodeReport");
    let refusal = wait_for("the policy is in force", async || {
        let parameters = manager().dry_run();
        let patched = reports
            .patch("n2", &parameters, &report("n2", "failed"))
            .await;
        patched.err().map(|error| error.to_string())
    })
    .await;
    assert!(
        refusal.contains("an agent may write the report of its own node only"),
        "{refusal}"
    );
    // Also a report that does not exist yet.
    let made = reports
        .patch("n3", &manager(), &report("n3", "failed"))
        .await;
    assert!(is_forbidden(&made), "{made:?}");
    let addresses = api(&server.client(User::Agent("n1")).await, "Address");
    let address = |node: &str| {
        let spec = json!({
            "network": "lan", "address": "10.88.0.5", "pod": "a", "interface": "net1", "container": "c", "node": node,
        });
        object("Address", "lan.10-88-0-5", &spec)
    };
    let refusal = wait_for("the policy of addresses is in force", async || {
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let created = addresses.create(&parameters, &address("n2")).await;
        created.err().map(|error| error.to_string())
    })
    .await;
    assert!(
        refusal.contains("an agent may change addresses of pods of its own node only"),
        "{refusal}"
    );
    addresses
        .create(&PostParams::default(), &address("n1"))
        .await
        .unwrap();
    addresses
        .delete("lan.10-88-0-5", &DeleteParams::default())
        .await
        .unwrap();
    // Its own report, and the removal of its states.
    let own = reports
        .patch("n1", &manager(), &report("n1", "verified"))
        .await;
    own.unwrap();
    let none = Patch::Apply(json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodeReport", "metadata": { "name": "n1" },
        "spec": NodeReportSpec::default(),
    }));
    let removed = reports.patch("n1", &manager(), &none).await;
    let removed = removed.unwrap();
    assert_eq!(removed.data["spec"]["partitions"], json!([]), "{removed:?}");
    let other = api(admin, "NodeReport").get("n2").await.unwrap();
    assert_eq!(other.data["spec"]["partitions"][0]["phase"], "verified");
}

/// Texts and lists of a report have bounds, so that no agent fills the store.
async fn refuses_reports_without_bounds(admin: &Client) {
    let reports = api(admin, "NodeReport");
    let states = |count: usize, message: &str| {
        let names = (0..count).map(|number| format!("p{number}"));
        let states: Vec<Value> = names
            .map(|name| json!({ "partition": name, "phase": "verified", "message": message }))
            .collect();
        object("NodeReport", "bounds", &json!({ "partitions": states }))
    };
    for (report, message) in [
        (states(17, ""), "Too many"),
        (states(1, &"x".repeat(1025)), "Too long"),
    ] {
        let created = reports.create(&PostParams::default(), &report).await;
        let Err(kube::Error::Api(status)) = created else {
            panic!("{created:?}");
        };
        assert!(status.message.contains(message), "{}", status.message);
    }
    let report = states(16, &"x".repeat(1024));
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    reports.create(&parameters, &report).await.unwrap();
}

#[test]
fn the_api_server_refuses_bad_resources_and_agents_and_partitions_follow_their_resources() {
    quietwire_cluster::runtime().unwrap().block_on(async {
        let tests = async {
            let mut server = Server::start().await;
            let admin = server.client(User::Admin).await;
            install(&admin).await;
            accepts_the_good_and_refuses_the_bad(&admin).await;
            gives_the_agent_its_rights_only(&server, &admin).await;
            keeps_an_agent_to_the_report_of_its_node(&server, &admin).await;
            refuses_reports_without_bounds(&admin).await;
            networks::install_controller(&admin).await;
            node::a_partition_is_applied_drifts_and_is_rolled_back(&server, &admin).await;
            networks::a_network_has_a_definition_as_long_as_it_exists(&server, &admin).await;
            webhook::pods_request_the_resources_of_their_networks(&server, &admin).await;
            rights::each_role_has_its_rights_only(&admin).await;
            faults::a_partition_follows_its_resource(&server, &admin).await;
            faults::no_pod_has_two_addresses_and_none_is_left(&server, &admin).await;
            faults::no_network_is_lost_and_no_definition_made_twice(&mut server, &admin).await;
            versions::a_later_version_has_the_objects_of_this_one(&admin).await;
        };
        tokio::time::timeout(ALL, tests).await.unwrap();
    });
}
