// SPDX-License-Identifier: Apache-2.0
//! Addresses of a network in an API server in memory.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use quietwire_base::wait_until;
use serde_json::{Value, json};

use super::book::BookError;
use super::protocol::AssignedAddresses;
use super::*;
use crate::runtime;
use crate::simulated::{KEPT, Simulated};

const DEADLINE: Duration = Duration::from_secs(60);
const ADDRESSES: &str = "addresses";

fn lan() -> NetworkName {
    "apps/lan".parse().unwrap()
}

fn holder(pod: &str, container: &str) -> Holder {
    Holder {
        namespace: "apps".to_owned(),
        pod: pod.to_owned(),
        uid: format!("uid-of-{pod}"),
        container: container.to_owned(),
        interface: "net1".to_owned(),
        configuration: "apps.lan".to_owned(),
    }
}

fn add(pod: &str, container: &str, requested: &[&str]) -> Request {
    Request::Add {
        network: lan(),
        holder: holder(pod, container),
        requested: requested.iter().map(|it| it.parse().unwrap()).collect(),
    }
}

fn del(container: &str) -> Request {
    Request::Del {
        network: lan(),
        container: container.to_owned(),
        interface: "net1".to_owned(),
    }
}

/// Returns the network, with these ranges.
fn network(ranges: &Value) -> Value {
    json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "Network",
        "metadata": { "namespace": "apps", "name": "lan", "uid": "of-lan" },
        "spec": {
            "bridge": "lan", "ranges": ranges,
            "reservations": [{ "address": "10.66.0.20", "pod": "db", "mac": "02:00:00:00:00:01" }],
        },
    })
}

/// An API server with a network.
pub(crate) fn server(ranges: &Value) -> Simulated {
    let server = Simulated::default();
    server.put("networks", &network(ranges));
    server
}

#[test]
fn names_of_networks_are_parts_of_a_path() {
    assert_eq!(lan().to_string(), "apps/lan");
    for text in [
        "apps/..",
        "../lan",
        "apps/lan?watch=1",
        "apps/a%2fb",
        "apps/a/b",
        "/lan",
        "apps/",
    ] {
        assert!(text.parse::<NetworkName>().is_err(), "{text}");
    }
}

fn book(server: &Simulated, node: &str) -> Book {
    Book::new(server.client(), node.to_owned())
}

/// Returns a pod of the namespace of the network.
pub(crate) fn pod(name: &str, uid: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "apps", "name": name, "uid": uid },
        "status": { "phase": phase },
    })
}

/// Gives one address to each of some pods, and returns the book of their node.
pub(crate) async fn assigned(server: &Simulated, pods: &[&str]) -> Book {
    let book = book(server, "n1");
    for pod in pods {
        let request = add(pod, &format!("container-of-{pod}"), &[]);
        book.answer(&request).await.unwrap();
    }
    book
}

fn addresses(given: &AssignedAddresses) -> Vec<String> {
    given.ips.iter().map(|(net, _)| net.to_string()).collect()
}

/// Returns the addresses in the API server.
fn present(server: &Simulated) -> BTreeSet<String> {
    let all = server.all(ADDRESSES);
    let text = |object: &Value| object["spec"]["address"].as_str().unwrap().to_owned();
    all.iter().map(text).collect()
}

/// Returns the verbs of requests for addresses and their resources, as a role has them.
pub(crate) fn requests() -> BTreeSet<(String, String)> {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let book = book(&server, "n1");
    runtime().unwrap().block_on(async {
        for request in [add("a", "c1", &[]), add("a", "c2", &[])] {
            book.answer(&request).await.unwrap();
        }
        for address in book.of_pods().await.unwrap() {
            assert!(!book.has_ended(&address).await.unwrap());
        }
        book.answer(&del("c2")).await.unwrap();
    });
    server.requests().into_iter().collect()
}

#[test]
fn a_pod_has_one_address_of_each_family_that_no_other_has() {
    let server = server(&json!([
        { "subnet": "10.66.0.0/24", "gateway": "10.66.0.1" }, { "subnet": "fd00:66::/64" },
    ]));
    let (first, second) = (book(&server, "n1"), book(&server, "n2"));
    runtime().unwrap().block_on(async {
        let mut found = BTreeSet::new();
        for number in 0..40 {
            let book = if number % 2 == 0 { &first } else { &second };
            let request = add(&format!("pod-{number}"), &format!("c{number}"), &[]);
            let given = book.answer(&request).await.unwrap();
            assert_eq!(given.ips.len(), 2, "{given:?}");
            assert!(given.ips[0].0.addr().is_ipv4() && given.ips[1].0.addr().is_ipv6());
            let gateway: IpAddr = "10.66.0.1".parse().unwrap();
            assert_eq!((given.ips[0].1, given.ips[1].1), (Some(gateway), None));
            for address in addresses(&given) {
                assert!(found.insert(address.clone()), "{address} twice");
            }
        }
        assert_eq!(present(&server).len(), 80);
        let all = server.all(ADDRESSES);
        let object = &all[0];
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["apiVersion"]),
            (&json!("Pod"), &json!("v1"))
        );
        let pod = object["spec"]["pod"].as_str().unwrap();
        assert_eq!(owner["uid"], json!(format!("uid-of-{pod}")));
    });
}

#[test]
fn addresses_are_released_and_kept_by_a_pod_whose_sandbox_is_created_again() {
    let server = server(&json!([{ "subnet": "10.66.0.0/29" }]));
    let (book, other) = (book(&server, "n1"), book(&server, "n2"));
    runtime().unwrap().block_on(async {
        let given = book.answer(&add("a", "c1", &[])).await.unwrap();
        let again = book.answer(&add("a", "c2", &[])).await.unwrap();
        assert_eq!(again, given);
        assert_eq!(present(&server).len(), 1);
        // The end of the former container takes nothing from the present one.
        book.answer(&del("c1")).await.unwrap();
        assert_eq!(present(&server).len(), 1);
        book.answer(&del("c2")).await.unwrap();
        book.answer(&del("c2")).await.unwrap();
        assert!(present(&server).is_empty());

        // Six addresses, and no seventh.
        for number in 0..6 {
            let request = add(&format!("b{number}"), &format!("d{number}"), &[]);
            book.answer(&request).await.unwrap();
        }
        let error = book.answer(&add("c", "e", &[])).await.unwrap_err();
        assert!(error.is_temporary());
        assert_eq!(
            error.to_string(),
            "Network 'apps/lan': the network has no free address"
        );
        // The runtime lists the valid containers.
        let gc = |configuration: &str| Request::Gc {
            network: lan(),
            configuration: configuration.to_owned(),
            valid: vec![("d1".to_owned(), "net1".to_owned())],
        };
        // Those of other nodes, and of other configurations with the same network, stay.
        other.answer(&gc("apps.lan")).await.unwrap();
        book.answer(&gc("other")).await.unwrap();
        assert_eq!(present(&server).len(), 6);
        book.answer(&gc("apps.lan")).await.unwrap();
        assert_eq!(present(&server).len(), 1);
    });
}

#[test]
fn an_address_that_the_api_server_keeps_delays_no_other() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    runtime().unwrap().block_on(async {
        let book = assigned(&server, &["a", "b", "c"]).await;
        // The one that is deleted first.
        let mut kept = server.all(ADDRESSES).remove(0);
        kept["metadata"]["annotations"] = json!({ KEPT: "" });
        server.put(ADDRESSES, &kept);
        let gc = Request::Gc {
            network: lan(),
            configuration: "apps.lan".to_owned(),
            valid: Vec::new(),
        };
        let error = book.answer(&gc).await.unwrap_err().to_string();
        assert!(error.contains("kept"), "{error}");
        assert_eq!(server.all(ADDRESSES), [kept]);
    });
}

#[test]
fn a_pod_has_one_address_if_the_reply_to_its_creation_is_lost() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let book = book(&server, "n1");
    server.repeat_creates(true);
    runtime().unwrap().block_on(async {
        let given = book.answer(&add("a", "c1", &[])).await.unwrap();
        let requested = book.answer(&add("b", "c2", &["10.66.0.5"])).await;
        assert_eq!(addresses(&requested.unwrap()), ["10.66.0.5/24"]);
        assert_eq!(present(&server).len(), 2);
        // That of another pod stays its own.
        server.repeat_creates(false);
        let error = book.answer(&add("c", "c3", &["10.66.0.5"])).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "Network 'apps/lan': another pod has 10.66.0.5"
        );
        let again = book.answer(&add("a", "c1", &[])).await.unwrap();
        assert_eq!(again, given);
        assert_eq!(present(&server).len(), 2);
    });
}

#[test]
fn an_address_that_the_network_has_no_more_is_replaced_with_the_sandbox() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let book = book(&server, "n1");
    runtime().unwrap().block_on(async {
        book.answer(&add("a", "c1", &[])).await.unwrap();
        server.put("networks", &network(&json!([{ "subnet": "10.67.0.0/30" }])));
        let given = book.answer(&add("a", "c2", &[])).await.unwrap();
        let now = addresses(&given);
        assert!(
            now.len() == 1 && now[0].starts_with("10.67.0.") && now[0].ends_with("/30"),
            "{now:?}"
        );
        book.answer(&del("c1")).await.unwrap();
        assert_eq!(present(&server).len(), 1);
        assert_eq!(book.answer(&add("a", "c2", &[])).await.unwrap(), given);
    });
}

#[test]
fn requested_and_reserved_addresses_are_given_to_their_pods_only() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let book = book(&server, "n1");
    runtime().unwrap().block_on(async {
        let given = book.answer(&add("db", "c1", &[])).await.unwrap();
        assert_eq!(addresses(&given), ["10.66.0.20/24"]);
        assert_eq!(given.mac.as_deref(), Some("02:00:00:00:00:01"));
        let given = book.answer(&add("a", "c2", &["10.66.0.7"])).await.unwrap();
        assert_eq!(addresses(&given), ["10.66.0.7/24"]);
        for (requested, message) in [
            ("10.66.0.7", "another pod has 10.66.0.7"),
            ("10.66.0.20", "10.66.0.20 is reserved for pod 'db'"),
            (
                "10.67.0.7",
                "no subnet of the network has 10.67.0.7 for pods",
            ),
        ] {
            // The former address is not kept if another one is free.
            let request = add("b", "c3", &["10.66.0.8", requested]);
            let error = book.answer(&request).await.unwrap_err();
            assert_eq!(error.to_string(), format!("Network 'apps/lan': {message}"));
            let all = present(&server);
            assert_eq!(all, ["10.66.0.20", "10.66.0.7"].map(str::to_owned).into());
        }
        let as_holder = |holder: Holder| Request::Add {
            network: lan(),
            holder,
            requested: Vec::new(),
        };
        let foreign = Holder {
            namespace: "other".to_owned(),
            ..holder("a", "c4")
        };
        let error = book.answer(&as_holder(foreign)).await.unwrap_err();
        assert!(matches!(error, BookError::Namespace { .. }), "{error}");
        let of_file = Holder {
            uid: "0123456789abcdef0123456789abcdef".to_owned(),
            ..holder("a", "c4")
        };
        let error = book.answer(&as_holder(of_file)).await.unwrap_err();
        assert!(matches!(error, BookError::StaticPod(_)), "{error}");
    });
}

#[test]
fn the_agent_answers_at_its_socket_to_root_only() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("addresses/agent.sock");
    let unreachable = ask(&socket, &del("c1")).unwrap_err();
    assert!(unreachable.is_temporary(), "{unreachable}");

    let agent = Agent::start(&server, &socket);
    let mode = socket.parent().unwrap().metadata().unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    let given = ask(&socket, &add("db", "c1", &[])).unwrap();
    assert_eq!(addresses(&given), ["10.66.0.20/24"]);
    let refused = ask(&socket, &add("a", "c2", &["10.66.0.20"])).unwrap_err();
    assert!(!refused.is_temporary());
    assert_eq!(
        refused.to_string(),
        "Network 'apps/lan': 10.66.0.20 is reserved for pod 'db'"
    );
    server.set_away(true);
    let status = Request::Status { network: lan() };
    assert!(ask(&socket, &status).unwrap_err().is_temporary());
    server.set_away(false);
    ask(&socket, &status).unwrap();
    agent.end();
    assert!(!socket.exists());
}

#[test]
fn the_agent_makes_its_socket_when_that_becomes_possible() {
    let server = server(&json!([{ "subnet": "10.66.0.0/24" }]));
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent.sock");
    std::fs::create_dir(&socket).unwrap();
    let agent = Agent::start(&server, &socket);
    assert!(ask(&socket, &del("c1")).is_err());
    std::fs::remove_dir(&socket).unwrap();
    assert!(wait_until(DEADLINE, || ask(&socket, &del("c1")).is_ok()));
    agent.end();
    // An agent that ends before ends all the same.
    std::fs::create_dir(&socket).unwrap();
    Agent::start(&server, &socket).end();
}

/// The agent's side of the requests, in a thread of its own.
struct Agent {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Agent {
    fn start(server: &Simulated, socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (server, flag, at) = (server.clone(), Arc::clone(&stop), socket.to_owned());
        let thread = thread::spawn(move || answer(&server, at, &flag));
        let is_there = || socket.exists();
        assert!(wait_until(DEADLINE, is_there));
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn answer(server: &Simulated, socket: PathBuf, stop: &Arc<AtomicBool>) {
    runtime().unwrap().block_on(async {
        let ended = crate::connection::ended(stop);
        serve(book(server, "n1"), socket, ended).await;
    });
}
