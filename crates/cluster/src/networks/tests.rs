// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::controller::Controller;
use super::definition::definitions;
use crate::cni::{NetworkConfig, PortKind};
use crate::follow::follow_once;
use crate::resources::{
    DataPlane, DataPlaneSpec, Network, NodePartition, NodePartitionSpec, NodeReport,
};
use crate::runtime;
use crate::simulated::{FOREIGN, Simulated};
use crate::summary::Summaries;

const DEFINITIONS: &str = "network-attachment-definitions";

fn network(namespace: &str, name: &str, spec: &Value) -> Network {
    let value = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "Network",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("of-{name}") },
        "spec": spec,
    });
    serde_json::from_value(value).unwrap()
}

fn lan(vlan: u16) -> Network {
    network("apps", "lan", &json!({ "bridge": "lan", "vlan": vlan }))
}

/// Stores networks in the API server instead of those that are there, and runs a pass with them.
async fn pass(
    server: &Simulated,
    controller: &Controller,
    networks: &[Network],
) -> Result<(), super::controller::PassError> {
    for network in server.all("networks") {
        let text = |key: &str| network["metadata"][key].as_str().unwrap().to_owned();
        server.take("networks", &text("namespace"), &text("name"));
    }
    for network in networks {
        server.put("networks", &serde_json::to_value(network).unwrap());
    }
    controller.pass(networks).await
}

/// Returns the network configuration of a definition.
fn configuration(definition: &Value) -> Value {
    serde_json::from_str(definition["spec"]["config"].as_str().unwrap()).unwrap()
}

#[test]
fn the_plugin_accepts_the_configuration_of_a_definition() {
    let spec = json!({
        "bridge": "lan", "vlan": 7, "vrf": "blue", "mtu": 9000, "port": "tap", "ranges": [{ "subnet": "10.66.0.0/24" }],
        "routes": [{ "destination": "10.0.0.0/8" }, { "destination": "0.0.0.0/0", "gateway": "10.66.0.1" }],
    });
    let functions = json!({
        "port": "host-device", "resource": "fast-nic", "ranges": [{ "subnet": "10.67.0.0/24" }],
    });
    let all = definitions(&[
        network("apps", "lan", &spec),
        network("apps", "uplinks", &functions),
        network("db", "lan", &json!({ "bridge": "lan" })),
    ]);
    let names: Vec<Value> = all
        .values()
        .map(|definition| configuration(definition)["name"].clone())
        .collect();
    assert_eq!(names, ["apps.lan", "apps.uplinks", "db.lan"]);
    let mut ports = Vec::new();
    for definition in all.values() {
        let list = configuration(definition);
        // The runtime adds version and name of the list, and what the capabilities are for.
        let mut plugin = list["plugins"][0].clone();
        plugin["cniVersion"] = list["cniVersion"].clone();
        plugin["name"] = list["name"].clone();
        plugin["runtimeConfig"] = json!({ "mac": "02:00:00:00:00:01", "ips": ["10.66.0.20/24"] });
        // Multus adds the device of the pod, if the network names a resource.
        plugin["deviceID"] = json!("0000:17:00.1");
        let config = NetworkConfig::parse(&plugin.to_string()).unwrap();
        ports.push((config.bridge, config.port));
    }
    let [lan, none] = ["lan", ""].map(str::to_owned);
    let expected = [
        (lan.clone(), PortKind::Tap),
        (none, PortKind::HostDevice),
        (lan, PortKind::Veth),
    ];
    assert_eq!(ports, expected);
    let first = configuration(all.values().next().unwrap());
    let plugin = &first["plugins"][0];
    assert_eq!((&plugin["vlan"], &plugin["mtu"]), (&json!(7), &json!(9000)));
    assert_eq!(
        (&plugin["port"], &plugin["vrf"]),
        (&json!("tap"), &json!("blue"))
    );
    assert_eq!(
        plugin["ipam"],
        json!({
            "type": "quietwire", "network": "apps/lan",
            "routes": [{ "dst": "10.0.0.0/8" }, { "dst": "0.0.0.0/0", "gw": "10.66.0.1" }],
        })
    );
}

#[test]
fn a_network_with_a_resource_names_it_to_multus() {
    let server = Simulated::default();
    let controller = Controller::new(server.client());
    let of_resource = |resource: &str| {
        let spec = json!({ "bridge": "lan", "port": "vhost-user", "resource": resource });
        network("apps", "fast", &spec)
    };
    let annotation = |definition: &Value| {
        definition["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"].clone()
    };
    runtime().unwrap().block_on(async {
        for resource in ["fast", "faster"] {
            let networks = [of_resource(resource), lan(7)];
            pass(&server, &controller, &networks).await.unwrap();
            let made = server.all(DEFINITIONS);
            assert_eq!(annotation(&made[0]), format!("quietwire.io/{resource}"));
            assert_eq!(annotation(&made[1]), Value::Null);
            assert_eq!(configuration(&made[0])["plugins"][0]["port"], "vhost-user");
            server.requests();
            pass(&server, &controller, &networks).await.unwrap();
            let list = ("list".to_owned(), DEFINITIONS.to_owned());
            assert_eq!(server.requests(), [list]);
        }
    });
}

#[test]
fn definitions_follow_their_networks() {
    let server = Simulated::default();
    let controller = Controller::new(server.client());
    runtime().unwrap().block_on(async {
        pass(&server, &controller, &[lan(7)]).await.unwrap();
        let made = server.all(DEFINITIONS);
        assert_eq!(made.len(), 1);
        assert_eq!(made[0]["metadata"]["namespace"], "apps");
        assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "of-lan");
        assert_eq!(configuration(&made[0])["plugins"][0]["vlan"], 7);
        server.requests();

        // Nothing has changed: one list.
        pass(&server, &controller, &[lan(7)]).await.unwrap();
        let list = ("list".to_owned(), DEFINITIONS.to_owned());
        assert_eq!(server.requests(), [list]);

        pass(&server, &controller, &[lan(8)]).await.unwrap();
        let changed = server.all(DEFINITIONS);
        assert_eq!(configuration(&changed[0])["plugins"][0]["vlan"], 8);

        // Others have deleted it.
        server.take(DEFINITIONS, "apps", "lan");
        pass(&server, &controller, &[lan(8)]).await.unwrap();
        assert_eq!(server.all(DEFINITIONS), changed_uid(&changed));

        pass(&server, &controller, &[]).await.unwrap();
        assert!(server.all(DEFINITIONS).is_empty());
    });
}

/// Returns definitions with the UIDs that they have when they are made again.
fn changed_uid(definitions: &[Value]) -> Vec<Value> {
    let mut again = definitions.to_vec();
    for definition in &mut again {
        definition["metadata"]["uid"] = json!("uid-2");
    }
    again
}

#[test]
fn definitions_of_others_stay() {
    let server = Simulated::default();
    let foreign = |name: &str, labels: &Value| {
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {
                "namespace": "apps", "name": name, "labels": labels, "uid": "foreign",
                "annotations": { FOREIGN: "yes" },
            },
            "spec": { "config": "{}" },
        })
    };
    // One has the name of a network, the other the label of the controller without a network as its owner.
    let others = [
        foreign("lan", &json!({})),
        foreign(
            "own",
            &json!({ "app.kubernetes.io/managed-by": "quietwire" }),
        ),
    ];
    for object in &others {
        server.put(DEFINITIONS, object);
    }
    let controller = Controller::new(server.client());
    runtime().unwrap().block_on(async {
        let more = network("apps", "more", &json!({ "bridge": "lan" }));
        let error = pass(&server, &controller, &[lan(7), more])
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("apps/lan: "), "{error}");
        let all = server.all(DEFINITIONS);
        assert_eq!((&all[0], &all[2]), (&others[0], &others[1]));
        // The conflict does not keep other definitions from being made.
        assert_eq!(all[1]["metadata"]["name"], "more");
    });
}

#[test]
fn an_old_list_of_networks_changes_nothing() {
    let server = Simulated::default();
    let (first, second) = (
        Controller::new(server.client()),
        Controller::new(server.client()),
    );
    runtime().unwrap().block_on(async {
        pass(&server, &first, &[lan(8)]).await.unwrap();
        let made = server.all(DEFINITIONS);
        // The watch of the second controller is interrupted since before the change, and since before the network was made.
        second.pass(&[lan(7)]).await.unwrap();
        assert_eq!(server.all(DEFINITIONS), made);
        second.pass(&[]).await.unwrap();
        assert_eq!(server.all(DEFINITIONS), made);
        // A network that was deleted meanwhile gets no definition.
        pass(&server, &first, &[]).await.unwrap();
        second.pass(&[lan(8)]).await.unwrap();
        assert!(server.all(DEFINITIONS).is_empty());
    });
}

#[test]
fn without_an_api_server_nothing_is_removed() {
    let server = Simulated::default();
    let controller = Controller::new(server.client());
    runtime().unwrap().block_on(async {
        pass(&server, &controller, &[lan(7)]).await.unwrap();
        server.set_away(true);
        assert!(controller.pass(&[]).await.is_err());
        server.set_away(false);
        assert_eq!(server.all(DEFINITIONS).len(), 1);
    });
}

#[test]
fn a_network_whose_vrf_no_data_plane_has_reports_it() {
    let server = Simulated::default();
    let controller = Controller::new(server.client());
    let of_vrf = |more: &Value| {
        let mut spec = json!({ "bridge": "lan", "vlan": 7, "vrf": "blue" });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        network("apps", "lan", &spec)
    };
    let plane = |vrfs: Value, vlan: u16| {
        let spec = json!({
            "nodeSelector": {}, "vrfs": vrfs,
            "interfaces": [{ "name": "lan0", "bridge": "lan", "vlan": vlan, "vrf": "blue" }],
        });
        DataPlane::new("edge", serde_json::from_value(spec).unwrap())
    };
    let blue = json!([{ "name": "blue" }]);
    runtime().unwrap().block_on(async {
        let mut last = Value::Null;
        for (network, planes, problem) in [
            (
                of_vrf(&json!({})),
                vec![],
                Some("VRF 'blue' is in no DataPlane "),
            ),
            (
                of_vrf(&json!({})),
                vec![plane(json!([]), 7)],
                Some("VRF 'blue' is in no DataPlane "),
            ),
            (
                of_vrf(&json!({})),
                vec![plane(blue.clone(), 8)],
                Some("of VRF 'blue' on bridge 'lan' in VLAN 7 "),
            ),
            (of_vrf(&json!({})), vec![plane(blue.clone(), 7)], None),
            (
                of_vrf(&json!({ "vrf": "main" })),
                vec![plane(blue, 7)],
                Some("of VRF 'main' on bridge 'lan' in VLAN 7 "),
            ),
        ] {
            server.put("networks", &serde_json::to_value(&network).unwrap());
            controller.report(&[network], &planes).await.unwrap();
            last = server.all("networks")[0].clone();
            match (last["status"]["problem"].as_str(), problem) {
                (Some(reported), Some(problem)) => {
                    assert!(reported.contains(problem), "{reported}");
                }
                (reported, problem) => assert_eq!(reported, problem),
            }
        }
        // A state that the API server has is not written again, and one of a network without a VRF never.
        server.requests();
        let reported: Network = serde_json::from_value(last).unwrap();
        let planes = [plane(json!([]), 7)];
        controller
            .report(&[reported, lan(7)], &planes)
            .await
            .unwrap();
        assert!(server.requests().is_empty());
        // It has been deleted meanwhile.
        server.take("networks", "apps", "lan");
        controller.report(&[of_vrf(&json!({}))], &[]).await.unwrap();
        server.set_away(true);
        let error = controller.report(&[of_vrf(&json!({}))], &[]).await;
        assert!(error.unwrap_err().to_string().starts_with("apps/lan: "));
    });
}

/// Follows partitions, data planes and reports, and writes summaries.
async fn summarise(server: &Simulated) {
    let (known, _partitions) = tokio::sync::watch::channel(None::<Vec<NodePartition>>);
    let all = kube::Api::all(server.client());
    follow_once(&all, &known).await.unwrap();
    let (known, _planes) = tokio::sync::watch::channel(None::<Vec<DataPlane>>);
    let all = kube::Api::all(server.client());
    follow_once(&all, &known).await.unwrap();
    let (known, _reports) = tokio::sync::watch::channel(None::<Vec<NodeReport>>);
    let all = kube::Api::all(server.client());
    follow_once(&all, &known).await.unwrap();
    let partition = NodePartition::new("edge", NodePartitionSpec::default());
    let plane = DataPlane::new("edge", DataPlaneSpec::default());
    let mut summaries = Summaries::new(server.client());
    summaries.pass(&[partition], &[plane], &[]).await.unwrap();
}

#[test]
fn the_cluster_role_of_the_controller_has_exactly_the_verbs_of_the_requests() {
    let server = Simulated::default();
    let controller = Controller::new(server.client());
    runtime().unwrap().block_on(async {
        let (known, _networks) = tokio::sync::watch::channel(None::<Vec<Network>>);
        follow_once(&kube::Api::all(server.client()), &known)
            .await
            .unwrap();
        pass(&server, &controller, &[lan(7)]).await.unwrap();
        let of_vrf = network("apps", "lan", &json!({ "bridge": "lan", "vrf": "blue" }));
        controller.report(&[of_vrf], &[]).await.unwrap();
        pass(&server, &controller, &[]).await.unwrap();
        summarise(&server).await;
    });
    let mut needed: BTreeSet<(String, String)> = server.requests().into_iter().collect();
    // A patch that makes an object requires the right to create it.
    needed.insert(("create".to_owned(), DEFINITIONS.to_owned()));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base");
    let text = std::fs::read_to_string(directory.join("controller.yaml")).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let role = documents
        .iter()
        .find(|document| document["kind"] == "ClusterRole")
        .unwrap();
    let mut allowed = BTreeSet::new();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for rule in role["rules"].as_array().unwrap() {
        for resource in rule["resources"].as_array().unwrap() {
            for verb in rule["verbs"].as_array().unwrap() {
                allowed.insert((text(verb), text(resource)));
            }
        }
    }
    assert_eq!(needed, allowed);
}
