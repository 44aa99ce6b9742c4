// SPDX-License-Identifier: Apache-2.0
//! The controller of networks, the addresses of pods and the partition of a node behind an API server that fails as a seed decides: refused
//! and lost requests, conflicts, watches that expire or end, connections that break, a restart, and the loss of one of two controllers. No
//! network is lost, no definition is made twice, no pod has two addresses, and a partition is applied and rolled back once. QUIETWIRE_SEED
//! chooses the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener as StdTcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use quietwire_base::random::Random;
use quietwire_host::machines;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::networks::RunningController;
use super::node::{
    GOVERNOR, IN_FORCE, NODE, RunningAgent, ask, is_rolled_back, quiet, reaches, settings,
    write_machine,
};
use super::server::{Server, User, wait_for};
use super::{api, object};

/// One request of this many fails.
const ONE_IN: u64 = 3;
/// Faults that must have happened before the API server is calm again.
const FAULTS_MIN: u64 = 5;
/// Networks at the beginning.
const NETWORKS: usize = 8;
/// Pods that require addresses, and how often each asks at most: kubelet tries again as well.
const PODS: usize = 10;
const TRIES: usize = 300;

/// Fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Refused without an effect.
    Unavailable,
    /// Refused because another client was faster, without an effect.
    Conflict,
    /// It has its effect, but the reply is lost.
    LostReply,
    /// The connection breaks before the request has an effect.
    Reset,
    /// The watch reports at once that its version is too old.
    Expired,
    /// The watch ends at once.
    Ended,
}

/// Decides which requests fail.
struct Faults {
    random: Mutex<Random>,
    is_calm: AtomicBool,
    count: AtomicU64,
}

impl Faults {
    fn draw(&self, is_watch: bool, is_read: bool) -> Option<Fault> {
        if self.is_calm.load(Ordering::Relaxed) {
            return None;
        }
        let mut random = self.random.lock().unwrap();
        if random.below(ONE_IN) != 0 {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let of_all = [Fault::Reset, Fault::LostReply];
        Some(match (is_watch, is_read) {
            (true, _) => random.one_of(
                Fault::Expired,
                &[Fault::Ended, Fault::Reset, Fault::Unavailable],
            ),
            (false, true) => random.one_of(Fault::Unavailable, &of_all),
            (false, false) => random.one_of(
                Fault::Conflict,
                &[Fault::Unavailable, Fault::Reset, Fault::LostReply],
            ),
        })
    }
}

/// Returns a response of the API server.
fn status(code: u16, reason: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "injected",
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap();
    json_of(response)
}

fn json_of(mut response: Response<Body>) -> Response<Body> {
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Sends a request to the API server.
async fn forward(client: &Client, request: Request<Incoming>) -> Result<Response<Body>, String> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?;
    let path = parts.uri.path_and_query().unwrap().as_str();
    let mut forwarded = Request::builder().method(parts.method).uri(path);
    for name in [CONTENT_TYPE, ACCEPT] {
        if let Some(value) = parts.headers.get(&name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let forwarded = forwarded.body(Body::from(body.to_bytes())).unwrap();
    let reply = client.send(forwarded).await;
    // The API server restarts.
    let (parts, body) = reply.map_err(|error| error.to_string())?.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    Ok(json_of(response))
}

/// Handles a request. An error breaks the connection.
async fn handle(
    client: &Client,
    faults: &Faults,
    request: Request<Incoming>,
) -> Result<Response<Body>, String> {
    let is_watch = request
        .uri()
        .query()
        .unwrap_or_default()
        .contains("watch=true");
    match faults.draw(is_watch, *request.method() == Method::GET) {
        None => forward(client, request).await,
        Some(Fault::Unavailable) => Ok(status(503, "ServiceUnavailable")),
        Some(Fault::Conflict) => Ok(status(409, "Conflict")),
        Some(Fault::LostReply) => {
            drop(forward(client, request).await?);
            Ok(status(504, "Timeout"))
        }
        Some(Fault::Reset) => Err("injected".to_owned()),
        Some(Fault::Expired) => {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "injected",
            });
            let event = json!({ "type": "ERROR", "object": status });
            Ok(json_of(Response::new(Body::from(
                format!("{event}\n").into_bytes(),
            ))))
        }
        Some(Fault::Ended) => Ok(json_of(Response::new(Body::empty()))),
    }
}

async fn converse(stream: TcpStream, client: Client, faults: Arc<Faults>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (client, faults) = (client.clone(), Arc::clone(&faults));
        async move { handle(&client, &faults, request).await }
    });
    // The client sees what broke.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A proxy before the API server, with a thread of its own. It ends when the value is dropped.
struct Proxy {
    faults: Arc<Faults>,
    kubeconfig: PathBuf,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that sends requests with the credentials of a kubeconfig, and writes one without credentials for its clients.
    fn start(upstream: &Path, seed: u64, directory: &Path) -> Self {
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let kubeconfig = directory.join(format!("proxy-{port}.yaml"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "it", "user": {} }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        });
        fs::write(&kubeconfig, text.to_string()).unwrap();
        let faults = Arc::new(Faults {
            random: Mutex::new(Random::new(seed)),
            is_calm: AtomicBool::new(false),
            count: AtomicU64::new(0),
        });
        let (end, ended) = tokio::sync::oneshot::channel();
        let (upstream, given) = (
            Kubeconfig::read_from(upstream).unwrap(),
            Arc::clone(&faults),
        );
        let thread = thread::spawn(move || {
            quietwire_cluster::runtime().unwrap().block_on(async {
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(upstream, &options).await;
                let client = Client::try_from(config.unwrap()).unwrap();
                let listener = TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(converse(stream, client.clone(), Arc::clone(&given)));
                    }
                };
                tokio::select! {
                    _ = ended => {}
                    () = accept => {}
                }
            });
        });
        Self {
            faults,
            kubeconfig,
            end: Some(end),
            thread: Some(thread),
        }
    }

    fn calm(&self) {
        self.faults.is_calm.store(true, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.faults.count.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn name(number: usize) -> String {
    format!("fault-{number}")
}

fn network(number: usize, vlan: usize) -> DynamicObject {
    object(
        "Network",
        &name(number),
        &json!({ "bridge": "lan", "vlan": vlan }),
    )
}

/// UIDs that each definition has had.
type Uids = BTreeMap<String, BTreeSet<String>>;

/// Returns the VLANs of the definitions of these tests, and notes their UIDs.
async fn observe(attachments: &Api<DynamicObject>, uids: &mut Uids) -> BTreeMap<String, Value> {
    let list = attachments.list(&ListParams::default()).await.unwrap();
    let of_tests = list
        .items
        .iter()
        .filter(|it| it.name_any().starts_with("fault-"));
    let mut vlans = BTreeMap::new();
    for definition in of_tests {
        let uid = definition.uid().unwrap();
        uids.entry(definition.name_any()).or_default().insert(uid);
        let config = definition.data["spec"]["config"].as_str().unwrap();
        let config: Value = serde_json::from_str(config).unwrap();
        vlans.insert(definition.name_any(), config["plugins"][0]["vlan"].clone());
    }
    vlans
}

/// Returns the seed, and prints it.
fn seed() -> u64 {
    let given = std::env::var("QUIETWIRE_SEED").ok();
    let seed = given.and_then(|text| text.parse().ok()).unwrap_or(7);
    println!("seed {seed}");
    seed
}

/// The definitions of Multus and the rights of the controller are installed.
pub(crate) async fn no_network_is_lost_and_no_definition_made_twice(
    server: &mut Server,
    admin: &Client,
) {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let upstream = server.kubeconfig_file(User::Controller);
    let proxies = [seed, seed + 1].map(|seed| Proxy::start(&upstream, seed, directory.path()));
    let [first, second] =
        [0, 1].map(|index: usize| RunningController::with(proxies[index].kubeconfig.clone()));

    let resource = ApiResource {
        group: "k8s.cni.cncf.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        plural: "network-attachment-definitions".to_owned(),
    };
    let attachments: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource);
    let networks = api(admin, "Network");
    let mut uids = Uids::new();
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    for number in 0..NETWORKS {
        networks
            .create(&PostParams::default(), &network(number, 10 + number))
            .await
            .unwrap();
        wanted.insert(name(number), json!(10 + number));
    }
    wait_for("requests fail", async || {
        observe(&attachments, &mut uids).await;
        let count: u64 = proxies.iter().map(Proxy::count).sum();
        (count >= FAULTS_MIN).then_some(())
    })
    .await;
    let change = Patch::Merge(json!({ "spec": { "vlan": 99 } }));
    networks
        .patch(&name(0), &PatchParams::default(), &change)
        .await
        .unwrap();
    wanted.insert(name(0), json!(99));
    networks
        .delete(&name(1), &DeleteParams::default())
        .await
        .unwrap();
    wanted.remove(&name(1));
    server.restart().await;
    networks
        .create(&PostParams::default(), &network(NETWORKS, 50))
        .await
        .unwrap();
    wanted.insert(name(NETWORKS), json!(50));
    // The other controller goes on alone.
    first.end();
    for proxy in &proxies {
        proxy.calm();
    }
    wait_for("all definitions are those of their networks", async || {
        (observe(&attachments, &mut uids).await == wanted).then_some(())
    })
    .await;
    // Not one was removed and made again.
    assert!(uids.values().all(|all| all.len() == 1), "{uids:?}");
    second.end();
    for name in wanted.keys() {
        networks
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        attachments
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// Asks the agent until it fulfils a request. Every refusal is one that may end.
fn until_given(socket: &Path, request: &Value) -> Value {
    for _ in 0..TRIES {
        let reply = ask(socket, request);
        if reply["given"].is_object() {
            return reply["given"].clone();
        }
        assert_eq!(reply["refused"]["is_temporary"], true, "{reply}");
    }
    panic!("not within {TRIES} tries: {request}");
}

/// Returns the number of addresses of the network of these tests.
async fn addresses(admin: &Client) -> usize {
    let list = api(admin, "Address").list(&ListParams::default()).await;
    let list = list.unwrap().items;
    let of_tests = list
        .iter()
        .filter(|it| it.data["spec"]["network"] == "faulty");
    of_tests.count()
}

/// The rights of the agent are installed, and its node exists.
pub(crate) async fn no_pod_has_two_addresses_and_none_is_left(server: &Server, admin: &Client) {
    let (directory, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    machines::Machine::default().write(root.path()).unwrap();
    let upstream = server.kubeconfig_file(User::Agent(NODE));
    let proxy = Proxy::start(&upstream, seed() + 2, directory.path());
    let agent = RunningAgent::with(proxy.kubeconfig.clone(), root.path());
    let socket = root.path().join("run/quietwire/addresses/agent.sock");
    wait_for("the agent listens", async || socket.exists().then_some(())).await;
    let spec = json!({ "bridge": "lan", "ranges": [{ "subnet": "10.98.0.0/28" }] });
    let networks = api(admin, "Network");
    networks
        .create(&PostParams::default(), &object("Network", "faulty", &spec))
        .await
        .unwrap();
    let add = |number: usize, container: &str| {
        let holder = json!({
            "namespace": "default", "pod": format!("p{number}"), "uid": format!("uid-of-{number}"),
            "container": format!("{container}-{number}"), "interface": "net1", "configuration": "default.faulty",
        });
        json!({ "command": "add", "network": "default/faulty", "holder": holder, "requested": [] })
    };
    let ips = |given: &Value| given["ips"][0][0].as_str().unwrap().to_owned();
    let given: Vec<String> = (0..PODS)
        .map(|number| ips(&until_given(&socket, &add(number, "first"))))
        .collect();
    assert_eq!(
        given.iter().collect::<BTreeSet<_>>().len(),
        PODS,
        "{given:?}"
    );
    assert_eq!(addresses(admin).await, PODS);
    // A new sandbox keeps the address.
    let again: Vec<String> = (0..PODS)
        .map(|number| ips(&until_given(&socket, &add(number, "second"))))
        .collect();
    assert_eq!(again, given);
    assert_eq!(addresses(admin).await, PODS);
    for number in 0..PODS {
        let del = json!({
            "command": "del", "network": "default/faulty", "container": format!("second-{number}"), "interface": "net1",
        });
        until_given(&socket, &del);
    }
    assert_eq!(addresses(admin).await, 0);
    assert!(proxy.count() >= FAULTS_MIN);
    proxy.calm();
    agent.end();
    networks
        .delete("faulty", &DeleteParams::default())
        .await
        .unwrap();
}

/// The rights of the agent are installed, and its node has the label of the partition.
pub(crate) async fn a_partition_follows_its_resource(server: &Server, admin: &Client) {
    let (directory, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = root.path();
    write_machine(root);
    let before = settings(root);
    let upstream = server.kubeconfig_file(User::Agent(NODE));
    let proxy = Proxy::start(&upstream, seed() + 3, directory.path());
    let agent = RunningAgent::with(proxy.kubeconfig.clone(), root);
    let upstream = server.kubeconfig_file(User::Controller);
    let of_controller = Proxy::start(&upstream, seed() + 4, directory.path());
    let controller = RunningController::with(of_controller.kubeconfig.clone());
    let partitions = api(admin, "NodePartition");
    partitions
        .create(&PostParams::default(), &quiet())
        .await
        .unwrap();
    let first = reaches(admin, &IN_FORCE).await;
    let governor = root.join(GOVERNOR);
    fs::write(&governor, "powersave").unwrap();
    let drifted = reaches(admin, &["drifted"]).await;
    assert!(
        drifted.failed_checks[0].file.contains("scaling_governor"),
        "{drifted:?}"
    );
    fs::write(&governor, "performance").unwrap();
    reaches(admin, &IN_FORCE).await;

    // A new generation is applied over the first one.
    let machine = json!({ "governor": "performance" });
    let change = Patch::Merge(json!({ "spec": { "request": { "machine": machine } } }));
    let changed = partitions
        .patch("quiet", &PatchParams::default(), &change)
        .await
        .unwrap();
    let generation = changed.metadata.generation.unwrap();
    assert!(generation > first.observed_generation);
    wait_for("the node has the new generation", async || {
        let status = reaches(admin, &IN_FORCE).await;
        (status.observed_generation == generation).then_some(())
    })
    .await;
    partitions
        .delete("quiet", &DeleteParams::default())
        .await
        .unwrap();
    is_rolled_back(root).await;
    // Changes that were made twice would have the settings of the first time as those before.
    assert_eq!(settings(root), before);
    wait_for("requests fail", async || {
        (proxy.count() >= FAULTS_MIN).then_some(())
    })
    .await;
    proxy.calm();
    of_controller.calm();
    agent.end();
    controller.end();
}
