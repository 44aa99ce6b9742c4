// SPDX-License-Identifier: Apache-2.0
//! Rights of each role: of all verbs and many resources, the API server permits exactly those that are listed here.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// Groups, and resources with their subresources. No role has rights for the last ones, with which it could get further rights.
const RESOURCES: [(&str, &str); 27] = [
    ("", "nodes"),
    ("quietwire.io", "nodepartitions"),
    ("quietwire.io", "nodepartitions/status"),
    ("quietwire.io", "dataplanes"),
    ("quietwire.io", "dataplanes/status"),
    ("quietwire.io", "nodereports"),
    ("quietwire.io", "networks"),
    ("quietwire.io", "addresses"),
    ("k8s.cni.cncf.io", "network-attachment-definitions"),
    ("topology.node.k8s.io", "noderesourcetopologies"),
    ("nfd.k8s-sigs.io", "nodefeatures"),
    ("", "nodes/status"),
    ("", "nodes/proxy"),
    ("", "pods"),
    ("", "pods/exec"),
    ("", "pods/binding"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("coordination.k8s.io", "leases"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];

/// Resources of a role with their verbs.
type Rights = &'static [(&'static str, &'static [&'static str])];

const AGENT: Rights = &[
    ("nodes", &["get"]),
    ("pods", &["get"]),
    ("nodepartitions", &["list", "watch"]),
    ("dataplanes", &["list", "watch"]),
    ("nodereports", &["get", "create", "patch"]),
    ("networks", &["get"]),
    ("addresses", &["list", "create", "patch", "delete"]),
    ("noderesourcetopologies", &["create", "patch"]),
    ("nodefeatures", &["create", "patch"]),
];

const CONTROLLER: Rights = &[
    ("nodes", &["list"]),
    ("nodepartitions", &["list", "watch"]),
    ("nodepartitions/status", &["patch"]),
    ("dataplanes", &["list", "watch"]),
    ("dataplanes/status", &["patch"]),
    ("nodereports", &["list", "watch"]),
    ("networks", &["get", "list", "watch"]),
    (
        "network-attachment-definitions",
        &["list", "create", "patch", "delete"],
    ),
];

const WEBHOOK: Rights = &[("networks", &["get"])];

/// Asks the API server whether the service account of a role may use a verb.
async fn is_permitted(admin: &Client, role: &str, group: &str, name: &str, verb: &str) -> bool {
    let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": {
            "user": format!("system:serviceaccount:quietwire:quietwire-{role}"),
            "groups": ["system:serviceaccounts", "system:serviceaccounts:quietwire", "system:authenticated"],
            "resourceAttributes": {
                "namespace": "default", "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            },
        },
    });
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(admin.clone());
    let decided = reviews.create(&PostParams::default(), &review).await;
    decided.unwrap().status.unwrap().allowed
}

/// The roles of all parts are installed.
pub(crate) async fn each_role_has_its_rights_only(admin: &Client) {
    for (role, rights) in [
        ("agent", AGENT),
        ("controller", CONTROLLER),
        ("webhook", WEBHOOK),
    ] {
        let wanted = rights.iter();
        let wanted: BTreeSet<(&str, &str)> = wanted
            .flat_map(|(resource, verbs)| verbs.iter().map(move |verb| (*resource, *verb)))
            .collect();
        let mut permitted = BTreeSet::new();
        for (group, resource) in RESOURCES {
            for verb in VERBS {
                if is_permitted(admin, role, group, resource, verb).await {
                    permitted.insert((resource, verb));
                }
            }
        }
        assert_eq!(permitted, wanted, "{role}");
    }
}
