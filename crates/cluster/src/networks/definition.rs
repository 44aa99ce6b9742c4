// SPDX-License-Identifier: Apache-2.0
//! The `NetworkAttachmentDefinition` of a `Network` (Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3).

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::devices::DOMAIN;
use crate::resources::{GROUP, Network, NetworkRoute};

/// Version of the CNI specification of the network configuration, which all runtimes support.
const CNI_VERSION: &str = "1.0.0";
/// Label of the objects that the controller made, and its value.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "quietwire");

/// Annotation with the resource of a network. Without it, Multus gives the plugin neither a device nor a device-info file.
const RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Namespace and name of an object.
pub(super) type Key = (String, String);

/// Returns the resource of the definitions.
pub(super) fn resource() -> ApiResource {
    ApiResource {
        group: "k8s.cni.cncf.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        plural: "network-attachment-definitions".to_owned(),
    }
}

/// Returns a route as a CNI result has it.
fn route(route: &NetworkRoute) -> Value {
    match &route.gateway {
        Some(gateway) => json!({ "dst": route.destination, "gw": gateway }),
        None => json!({ "dst": route.destination }),
    }
}

/// Returns the network configuration of the CNI plugin.
fn configuration(namespace: &str, name: &str, network: &Network) -> Value {
    let spec = &network.spec;
    let capabilities = json!({ "mac": true, "ips": true, "CNIDeviceInfoFile": true });
    let mut plugin = BTreeMap::from([("type", json!("quietwire")), ("capabilities", capabilities)]);
    if let Some(bridge) = &spec.bridge {
        plugin.insert("bridge", json!(bridge));
    }
    if let Some(vlan) = spec.vlan {
        plugin.insert("vlan", json!(vlan));
    }
    if let Some(vrf) = &spec.vrf {
        plugin.insert("vrf", json!(vrf));
    }
    if let Some(mtu) = spec.mtu {
        plugin.insert("mtu", json!(mtu));
    }
    if let Some(port) = spec.port {
        plugin.insert("port", json!(port));
    }
    // Without ranges, pods have the addresses that they request.
    if !spec.ranges.is_empty() {
        let network = json!(format!("{namespace}/{name}"));
        let mut ipam = BTreeMap::from([("type", json!("quietwire")), ("network", network)]);
        if !spec.routes.is_empty() {
            ipam.insert("routes", spec.routes.iter().map(route).collect());
        }
        plugin.insert("ipam", json!(ipam));
    }
    // A namespace has no dot, so that names of networks of several namespaces differ.
    json!({ "cniVersion": CNI_VERSION, "name": format!("{namespace}.{name}"), "plugins": [plugin] })
}

/// Returns the definitions of networks. One that is about to be deleted has none.
pub(super) fn definitions(networks: &[Network]) -> BTreeMap<Key, Value> {
    let resource = resource();
    let (label, value) = MANAGED_BY;
    let current = networks
        .iter()
        .filter(|network| network.metadata.deletion_timestamp.is_none());
    let define = |network: &Network| {
        let namespace = network.namespace().unwrap_or_default();
        let name = network.name_any();
        let config = configuration(&namespace, &name, network).to_string();
        // The garbage collector of Kubernetes deletes the definition with its network, also while the controller is away.
        let owner = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Network", "name": name,
            "uid": network.metadata.uid.clone().unwrap_or_default(), "controller": true,
        });
        let resource_name = network.spec.resource.as_ref();
        let annotations: BTreeMap<&str, String> = resource_name
            .map(|name| (RESOURCE, format!("{DOMAIN}/{name}")))
            .into_iter()
            .collect();
        let definition = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {
                "name": name, "namespace": namespace, "labels": { label: value },
                "annotations": annotations, "ownerReferences": [owner],
            },
            "spec": { "config": config },
        });
        ((namespace, name), definition)
    };
    current.map(define).collect()
}

/// Returns the UID of the `Network` that controls an object.
fn owner(object: &DynamicObject) -> Option<&str> {
    let of_group = format!("{GROUP}/");
    let mut owners = object.owner_references().iter();
    let owner = owners.find(|it| {
        it.controller == Some(true) && it.kind == "Network" && it.api_version.starts_with(&of_group)
    });
    owner.map(|it| it.uid.as_str())
}

/// Returns whether the controller made an object.
pub(super) fn is_made_here(object: &DynamicObject) -> bool {
    owner(object).is_some()
}

/// Returns whether an object is as it is wanted.
pub(super) fn is_current(object: &DynamicObject, wanted: &Value) -> bool {
    let uid = wanted.pointer("/metadata/ownerReferences/0/uid");
    let uid = uid.and_then(Value::as_str);
    let annotations = wanted.pointer("/metadata/annotations");
    let resource = annotations.and_then(|all| all.get(RESOURCE)?.as_str());
    object.data.get("spec") == wanted.get("spec")
        && owner(object) == uid
        && object.annotations().get(RESOURCE).map(String::as_str) == resource
}
