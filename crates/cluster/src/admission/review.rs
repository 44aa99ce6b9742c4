// SPDX-License-Identifier: Apache-2.0
//! `AdmissionReview` of the API server (admission.k8s.io/v1): the request, the decision, and the response.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pods::patch;
use super::selection::{ANNOTATION, selected};
use crate::devices::DOMAIN;
use crate::follow::bounded;
use crate::resources::Network;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Most objects and most values of a review. An object of one field takes 8 octets of JSON and over 500 of memory, so a review takes 20 MiB
/// at most.
const OBJECTS_MAX: usize = 10_000;
const VALUES_MAX: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Request,
}

/// The part of a request that decides on a pod.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    uid: String,
    /// The pod may have none yet.
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Value,
}

impl Request {
    /// Returns namespaces and names of the networks that the pod names.
    ///
    /// # Errors
    /// The annotation is malformed.
    pub(super) fn networks(&self) -> Result<Vec<(String, String)>, String> {
        let annotations = self.object.pointer("/metadata/annotations");
        let text = annotations.and_then(|annotations| annotations.get(ANNOTATION)?.as_str());
        selected(text.unwrap_or_default(), &self.namespace)
    }

    /// Returns the patch that gives the pod the wanted number of each resource.
    pub(super) fn patch(&self, wanted: &BTreeMap<String, u64>) -> Option<Value> {
        patch(&self.object, wanted)
    }
}

/// Every pod is admitted, perhaps with a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    patch: Option<Value>,
    warnings: Vec<String>,
}

/// Reads a review.
///
/// # Errors
/// The text is no review of this version, or has too many parts.
pub(super) fn parse(octets: &[u8]) -> Result<Request, String> {
    // Those in strings count, too.
    let count = |wanted: u8| octets.iter().filter(|octet| **octet == wanted).count();
    if count(b'{') > OBJECTS_MAX || count(b',') > VALUES_MAX {
        return Err(format!(
            "the review has more than {OBJECTS_MAX} objects or {VALUES_MAX} values"
        ));
    }
    let envelope: Envelope = serde_json::from_slice(octets).map_err(|error| error.to_string())?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        return Err(format!("expected {KIND} of {API_VERSION}"));
    }
    Ok(envelope.request)
}

/// Decides on a pod (verb `get` of `networks`). Networks that do not exist are not quietwire's, and request nothing.
///
/// # Errors
/// Those of the requests: the API server refuses the pod, and its owner tries again.
pub(super) async fn decide(client: &Client, request: &Request) -> kube::Result<Decision> {
    let networks = match request.networks() {
        Ok(networks) => networks,
        // Multus reports it at the pod.
        Err(problem) => {
            return Ok(Decision {
                patch: None,
                warnings: vec![format!("quietwire: annotation {ANNOTATION}: {problem}")],
            });
        }
    };
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for network in networks {
        let count = counts.entry(network).or_default();
        *count = count.saturating_add(1);
    }
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for ((namespace, name), count) in counts {
        let all: Api<Network> = Api::namespaced(client.clone(), &namespace);
        let found = bounded(all.get_opt(&name)).await?;
        if let Some(resource) = found.and_then(|network| network.spec.resource) {
            let of_resource = wanted.entry(format!("{DOMAIN}/{resource}")).or_default();
            *of_resource = of_resource.saturating_add(count);
        }
    }
    Ok(Decision {
        patch: request.patch(&wanted),
        warnings: Vec::new(),
    })
}

/// Returns the review with the response.
pub(super) fn reply(request: &Request, decision: &Decision) -> Value {
    let mut response = BTreeMap::from([("uid", json!(request.uid)), ("allowed", json!(true))]);
    if let Some(patch) = &decision.patch {
        response.insert("patchType", json!("JSONPatch"));
        response.insert("patch", json!(STANDARD.encode(patch.to_string())));
    }
    if !decision.warnings.is_empty() {
        response.insert("warnings", json!(decision.warnings));
    }
    json!({ "apiVersion": API_VERSION, "kind": KIND, "response": response })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;
    use crate::simulated::Simulated;

    fn review(networks: &str) -> Vec<u8> {
        let pod = json!({
            "metadata": { "name": "a", "annotations": { ANNOTATION: networks } },
            "spec": { "containers": [{ "name": "app" }] },
        });
        let request =
            json!({ "uid": "7", "namespace": "apps", "operation": "CREATE", "object": pod });
        let review = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request });
        review.to_string().into_bytes()
    }

    fn server() -> Simulated {
        let server = Simulated::default();
        for (name, resource) in [
            ("lan", Some("memif")),
            ("wan", Some("fast-nic")),
            ("plain", None),
        ] {
            let network = json!({
                "apiVersion": "quietwire.io/v1alpha1", "kind": "Network",
                "metadata": { "namespace": "apps", "name": name }, "spec": { "bridge": "lan", "resource": resource },
            });
            server.put("networks", &network);
        }
        server
    }

    fn decided(server: &Simulated, networks: &str) -> Value {
        let request = parse(&review(networks)).unwrap();
        let client = server.client();
        let decision = runtime().unwrap().block_on(decide(&client, &request));
        reply(&request, &decision.unwrap())
    }

    fn patch_of(reply: &Value) -> Value {
        let text = reply["response"]["patch"].as_str().unwrap();
        serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_requests_the_resources_of_its_networks() {
        let server = server();
        let reply = decided(&server, "lan,wan,lan,plain,absent,other/lan");
        let response = &reply["response"];
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("7"), &json!(true))
        );
        assert_eq!(response["patchType"], "JSONPatch");
        let limits = json!({ "quietwire.io/memif": "2", "quietwire.io/fast-nic": "1" });
        assert_eq!(patch_of(&reply)[0]["value"]["limits"], limits);
        // Each network once, also the one of another namespace.
        let get = ("get".to_owned(), "networks".to_owned());
        assert_eq!(server.requests(), vec![get; 5]);
    }

    #[test]
    fn other_pods_stay_as_they_are() {
        let server = server();
        for networks in ["plain", "absent", ""] {
            let response = decided(&server, networks)["response"].clone();
            assert_eq!(response, json!({ "uid": "7", "allowed": true }));
        }
        let response = decided(&server, "[{")["response"].clone();
        assert_eq!(response["allowed"], true);
        assert!(response["patch"].is_null());
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.contains(ANNOTATION), "{warning}");
    }

    #[test]
    fn without_an_api_server_no_decision_is_made() {
        let server = server();
        server.set_away(true);
        let request = parse(&review("lan")).unwrap();
        let client = server.client();
        let decision = runtime().unwrap().block_on(decide(&client, &request));
        assert!(decision.is_err());
    }

    #[test]
    fn an_invalid_review_is_an_error() {
        assert!(parse(b"{").is_err());
        let (object, value) = (r#"{"":0},"#, "0,");
        for many in [object.repeat(OBJECTS_MAX), value.repeat(VALUES_MAX + 1)] {
            let text = format!(r#"{{"object":[{many}0]}}"#);
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains("more than"), "{error}");
        }
        let other = review("lan");
        let other = String::from_utf8(other).unwrap().replace("/v1", "/v1beta1");
        assert!(parse(other.as_bytes()).unwrap_err().contains(API_VERSION));
    }
}
