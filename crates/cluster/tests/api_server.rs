// SPDX-License-Identifier: Apache-2.0
//! The custom resources against a real API server with etcd: it accepts the definitions, refuses bad resources by their CEL rules, and gives
//! the agent the rights of its ClusterRole and no others. `make test-cluster` builds the server and runs this.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::{Api, Client, Config, ResourceExt as _};
use quietwire_cluster::resources::{DataPlane, Network, NodePartition, definitions};
use serde_json::{Value, json};

/// Time for the start of the API server, and for everything else that the test waits for.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// A program that ends with the test, also if the test is killed.
struct Program(Child);

impl Program {
    fn start(program: &Path, arguments: &[String], log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that no program listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// An API server with etcd.
struct Cluster {
    _etcd: Program,
    _api_server: Program,
    directory: tempfile::TempDir,
    port: u16,
}

impl Cluster {
    fn start() -> Self {
        let api_server = std::env::var_os("QUIETWIRE_API_SERVER");
        let api_server =
            PathBuf::from(api_server.expect("QUIETWIRE_API_SERVER is set by make test-cluster"));
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let key = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(at("sa.key"))
            .arg("2048")
            .stderr(Stdio::null())
            .status();
        assert!(key.unwrap().success());
        fs::write(
            at("tokens.csv"),
            "admin,admin,1,system:masters\nagent,agent,2\n",
        )
        .unwrap();
        let client_url = format!("http://127.0.0.1:{}", free_port());
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        let etcd = [
            format!("--data-dir={}", at("etcd").display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
        ];
        let etcd = Program::start(Path::new("etcd"), &etcd, &at("etcd.log"));
        let port = free_port();
        let key = at("sa.key").display().to_string();
        let arguments = [
            format!("--etcd-servers={client_url}"),
            "--bind-address=127.0.0.1".to_owned(),
            // The API server announces it, and nothing connects to it.
            "--advertise-address=192.0.2.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", at("certificates").display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            format!("--token-auth-file={}", at("tokens.csv").display()),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let program = Program::start(&api_server, &arguments, &at("api-server.log"));
        Self {
            _etcd: etcd,
            _api_server: program,
            directory,
            port,
        }
    }

    fn client(&self, token: &str) -> Client {
        let url = format!("https://127.0.0.1:{}", self.port);
        let mut config = Config::new(url.parse().unwrap());
        // The server has made its certificate itself.
        config.accept_invalid_certs = true;
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        Client::try_from(config).unwrap()
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("api-server.log")).unwrap();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits until the API server replies to lists of namespaces and has made the namespace `default`.
    async fn wait(&self, admin: &Client) {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
        let ready = async {
            while namespaces.get("default").await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        };
        let ready = tokio::time::timeout(DEADLINE, ready).await;
        assert!(
            ready.is_ok(),
            "the API server does not reply: {}",
            self.log()
        );
    }
}

async fn install(admin: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for definition in definitions() {
        let created = api.create(&PostParams::default(), &definition).await;
        let name = created.unwrap_or_else(|error| panic!("{error}")).name_any();
        let is_established = |definition: &CustomResourceDefinition| {
            let conditions = definition
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it.type_ == "Established" && it.status == "True")
        };
        let established = async {
            while !is_established(&api.get(&name).await.unwrap()) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(DEADLINE, established).await.unwrap();
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    match kind {
        "NodePartition" => Api::all_with(client.clone(), &ApiResource::erase::<NodePartition>(&())),
        "DataPlane" => Api::all_with(client.clone(), &ApiResource::erase::<DataPlane>(&())),
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
            "Network",
            json!({ "bridge": "lan", "vlan": 7,
                "ranges": [{ "subnet": "10.66.0.0/24", "first": "10.66.0.10", "gateway": "10.66.0.1" }, { "subnet": "fd00:66::/64" }],
                "reservations": [{ "address": "10.66.0.20", "pod": "db", "mac": "02:00:00:00:00:01" }] }),
        ),
    ]
}

/// Specifications that it refuses, with a part of the message.
fn bad() -> Vec<(&'static str, Value, &'static str)> {
    let partition =
        |request: Value| json!({ "nodeSelector": { "role": "edge" }, "request": request });
    let plane = |ports: Value| json!({ "nodeSelector": { "role": "edge" }, "ports": ports });
    let range = |range: Value| json!({ "bridge": "lan", "ranges": [range] });
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
            plane(json!([{ "name": "a", "uri": "no uri" }])),
            "should match",
        ),
        (
            "Network",
            range(json!({ "subnet": "10.0.0.0/33" })),
            "subnet is no prefix",
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
            json!({ "bridge": "lan", "vlan": 4095 }),
            "less than or equal to 4094",
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

async fn gives_the_agent_its_rights_only(admin: &Client, agent: &Client) {
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base/rbac.yaml"),
    );
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text.unwrap()).unwrap();
    let role = documents
        .into_iter()
        .find(|it| it["kind"] == "ClusterRole")
        .unwrap();
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "agent" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any() },
        "subjects": [{ "kind": "User", "name": "agent", "apiGroup": "rbac.authorization.k8s.io" }],
    });
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(admin.clone());
    let binding = serde_json::from_value(binding).unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();

    let partitions = api(agent, "NodePartition");
    let allowed = async {
        while is_forbidden(&partitions.list(&ListParams::default()).await) {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(DEADLINE, allowed).await.unwrap();
    let status = |node: &str| {
        Patch::Apply(json!({
            "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition", "metadata": { "name": "good-0" },
            "status": { "nodes": [{ "node": node, "phase": "verified" }] },
        }))
    };
    // Each agent owns the entry of its node.
    for node in ["n1", "n2"] {
        let parameters = PatchParams::apply(&format!("quietwire-{node}")).force();
        partitions
            .patch_status("good-0", &parameters, &status(node))
            .await
            .unwrap();
    }
    let both = api(admin, "NodePartition").get("good-0").await.unwrap();
    assert_eq!(
        both.data["status"]["nodes"].as_array().unwrap().len(),
        2,
        "{both:?}"
    );

    let spec = json!({ "nodeSelector": { "role": "edge" } });
    let created = partitions
        .create(
            &PostParams::default(),
            &object("NodePartition", "other", &spec),
        )
        .await;
    assert!(is_forbidden(&created), "{created:?}");
    let pods: Api<Pod> = Api::all(agent.clone());
    assert!(is_forbidden(&pods.list(&ListParams::default()).await));
    let nodes: Api<Node> = Api::all(agent.clone());
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(is_forbidden(
        &nodes
            .delete("n1", &kube::api::DeleteParams::default())
            .await
    ));
}

#[test]
fn the_api_server_refuses_bad_resources_and_gives_the_agent_its_rights_only() {
    let cluster = Cluster::start();
    quietwire_cluster::runtime().unwrap().block_on(async {
        let admin = cluster.client("admin");
        cluster.wait(&admin).await;
        install(&admin).await;
        accepts_the_good_and_refuses_the_bad(&admin).await;
        gives_the_agent_its_rights_only(&admin, &cluster.client("agent")).await;
    });
}
