// SPDX-License-Identifier: Apache-2.0
//! An API server in memory, for tests: objects of any kind, without schemas, rights and watches.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};

/// Annotation of objects whose fields belong to others: an apply without force is a conflict.
pub(crate) const FOREIGN: &str = "foreign";
/// Annotation of objects that the API server does not delete, because of a policy.
pub(crate) const KEPT: &str = "kept";

/// Plural name of the kind, namespace and name of an object. Cluster-wide objects have no namespace.
type Key = (String, String, String);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    /// Verbs and resources of all requests, as roles have them.
    requests: Vec<(String, String)>,
    uids: u64,
    is_away: bool,
    are_creates_repeated: bool,
}

/// An API server in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated {
    state: Arc<Mutex<State>>,
}

/// Returns a runtime for the tasks of clients, which outlive the test that makes them.
fn runtime() -> &'static Handle {
    static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    });
    &RUNTIME
}

impl Simulated {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let octets = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&octets).unwrap_or(Value::Null);
                let query = parts.uri.query().unwrap_or_default();
                let (code, reply) = server.reply(&parts.method, parts.uri.path(), query, &body);
                let reply = Response::builder()
                    .status(code)
                    .body(Body::from(reply.into_bytes()));
                Ok::<_, Infallible>(reply.unwrap())
            }
        });
        // A client has a task.
        let _inside = runtime().enter();
        Client::new(service, "default")
    }

    /// Stores an object.
    pub(crate) fn put(&self, plural: &str, object: &Value) {
        let text = |key: &str| {
            object["metadata"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let key = (plural.to_owned(), text("namespace"), text("name"));
        self.state().objects.insert(key, object.clone());
    }

    /// Removes an object.
    pub(crate) fn take(&self, plural: &str, namespace: &str, name: &str) {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.state().objects.remove(&key).unwrap();
    }

    /// Returns all objects of a kind, in the order of their namespaces and names.
    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        let state = self.state();
        let of_kind = state.objects.iter().filter(|(key, _)| key.0 == plural);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// Returns the requests since the last call, in their order.
    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state().requests)
    }

    /// Decides whether all requests fail.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// Decides whether each object is created twice, as by a client that lost the first reply. The reply is that of the second time.
    pub(crate) fn repeat_creates(&self, are_repeated: bool) {
        self.state().are_creates_repeated = are_repeated;
    }

    fn reply(&self, method: &Method, path: &str, query: &str, body: &Value) -> (u16, String) {
        let Target {
            plural,
            namespace,
            name,
            subresource,
        } = target(path);
        let mut state = self.state();
        let is_watch = query.contains("watch=true");
        let verb = match (method.as_str(), &name) {
            ("GET", None) if is_watch => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PATCH", _) => "patch",
            ("DELETE", _) => "delete",
            other => panic!("{other:?} {path}"),
        };
        let resource = match &subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural.clone(),
        };
        state.requests.push((verb.to_owned(), resource));
        if state.is_away {
            return failure(503, "away");
        }
        let named = |name: &str| (plural.clone(), namespace.clone(), name.to_owned());
        match (verb, name) {
            // It ends at once, without events.
            ("watch", _) => (200, String::new()),
            ("list", _) => {
                let labels = selector(query);
                let items = state.objects.iter().filter(|(key, object)| {
                    key.0 == plural
                        && (namespace.is_empty() || key.1 == namespace)
                        && has_labels(object, &labels)
                });
                let items: Vec<&Value> = items.map(|(_, object)| object).collect();
                let list = json!({
                    "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "7" }, "items": items,
                });
                (200, list.to_string())
            }
            ("get", Some(name)) => match state.objects.get(&named(&name)) {
                Some(object) => (200, object.to_string()),
                None => failure(404, "not found"),
            },
            ("create", _) => {
                let name = body["metadata"]["name"].as_str().unwrap();
                let key = named(name);
                if state.objects.contains_key(&key) {
                    return failure(409, "already exists");
                }
                let object = state.completed(body, &key);
                if state.are_creates_repeated {
                    return failure(409, "already exists");
                }
                (201, object.to_string())
            }
            ("patch", Some(name)) => {
                let key = named(&name);
                let mut object = match state.objects.get(&key) {
                    Some(present) => {
                        let foreign = &present["metadata"]["annotations"][FOREIGN];
                        if !foreign.is_null() && !query.contains("force=true") {
                            return failure(409, "conflict");
                        }
                        present.clone()
                    }
                    None if subresource.is_some() => return failure(404, "not found"),
                    None => json!({}),
                };
                merge(&mut object, body);
                let object = state.completed(&object, &key);
                (200, object.to_string())
            }
            ("delete", Some(name)) => {
                let key = named(&name);
                let wanted = &body["preconditions"]["uid"];
                match state.objects.get(&key) {
                    None => failure(404, "not found"),
                    Some(object) if !wanted.is_null() && object["metadata"]["uid"] != *wanted => {
                        failure(409, "another object")
                    }
                    Some(object) if !object["metadata"]["annotations"][KEPT].is_null() => {
                        failure(403, "kept")
                    }
                    Some(_) => {
                        state.objects.remove(&key);
                        let done = json!({
                            "apiVersion": "v1", "kind": "Status", "status": "Success", "code": 200,
                            "message": "", "reason": "",
                        });
                        (200, done.to_string())
                    }
                }
            }
            other => panic!("{other:?} {path}"),
        }
    }
}

impl State {
    /// Stores an object with its namespace and a UID, and returns it.
    fn completed(&mut self, object: &Value, key: &Key) -> Value {
        let mut object = object.clone();
        if !key.1.is_empty() {
            object["metadata"]["namespace"] = json!(key.1);
        }
        if object["metadata"]["uid"].is_null() {
            self.uids += 1;
            object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        }
        self.objects.insert(key.clone(), object.clone());
        object
    }
}

/// Object or kind of a request.
struct Target {
    plural: String,
    namespace: String,
    name: Option<String>,
    subresource: Option<String>,
}

/// Returns the target of a path: `/api/v1/[namespaces/NAMESPACE/]KIND[/NAME[/SUBRESOURCE]]`, and the same below `/apis/GROUP/VERSION`.
fn target(path: &str) -> Target {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = match parts[0] {
        "api" => &parts[2..],
        _ => &parts[3..],
    };
    let (namespace, parts) = match parts {
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        all => ("", all),
    };
    let part = |index: usize| parts.get(index).map(|part| (*part).to_owned());
    Target {
        plural: parts[0].to_owned(),
        namespace: namespace.to_owned(),
        name: part(1),
        subresource: part(2),
    }
}

/// Returns the pairs of a selector of labels: `labelSelector=a%3D1%2Cb%3D2`.
fn selector(query: &str) -> BTreeSet<(String, String)> {
    let mut pairs = query.split('&');
    let selector = pairs.find_map(|pair| pair.strip_prefix("labelSelector="));
    let selector = selector.unwrap_or_default();
    let selector = selector
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%2F", "/");
    let terms = selector.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (key, value) = term.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        })
        .collect()
}

fn has_labels(object: &Value, labels: &BTreeSet<(String, String)>) -> bool {
    let mut labels = labels.iter();
    labels.all(|(key, value)| object["metadata"]["labels"][key.as_str()] == json!(value))
}

/// Merges a patch into an object (RFC 7396, without the removal of fields).
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        merge(&mut object[key.as_str()], value);
    }
}

fn failure(code: u16, message: &str) -> (u16, String) {
    let reason = match (code, message) {
        (404, _) => "NotFound",
        (409, "already exists") => "AlreadyExists",
        (409, _) => "Conflict",
        (403, _) => "Forbidden",
        _ => "ServiceUnavailable",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason,
    });
    (code, status.to_string())
}
