// SPDX-License-Identifier: Apache-2.0
//! Containers attached by the CNI plugin: the network namespaces are real, the container runtime is the test.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::{Namespace, Switch, ping, quietwire, run, until};

/// An IPAM plugin: the address is in a file with the name of the container. DEL removes the file.
const ADDRESSES: &str = r#"#!/bin/sh
file="$(dirname "$0")/$CNI_CONTAINERID"
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"'$(cat "$file")'/24","gateway":"10.66.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}' ;;
DEL) rm -f "$file" ;;
esac
"#;

struct Runtime {
    directory: TempDir,
    switch: Switch,
    // After the switch, whose namespace it is.
    host: Namespace,
}

impl Runtime {
    fn new(kind: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let plugin = directory.path().join("addresses");
        fs::write(&plugin, ADDRESSES).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        let host = Namespace::new(kind);
        let switch = Switch::start(&host, directory.path(), &[], &[]);
        switch.change(&["add", "bridge", "lan"]);
        Self {
            directory,
            switch,
            host,
        }
    }

    fn give(&self, container: &str, address: &str) {
        fs::write(self.directory.path().join(container), address).unwrap();
    }

    fn call(&self, command: &str, container: &Namespace, more: &Value) -> Output {
        let mut config = json!({
            "cniVersion": "1.1.0",
            "name": "lan",
            "type": "quietwire",
            "bridge": "lan",
            "mtu": 1400,
            "controlSocket": self.switch.control(),
            "socketDirectory": self.directory.path().join("cni"),
            "ipam": { "type": "addresses" },
        });
        let fields = config.as_object_mut().unwrap();
        for (key, value) in more.as_object().unwrap() {
            fields.insert(key.clone(), value.clone());
        }
        let mut child = Command::new(quietwire())
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container.name())
            .env("CNI_NETNS", format!("/run/netns/{}", container.name()))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(config.to_string().as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap()
    }

    fn done(&self, command: &str, container: &Namespace, more: &Value) -> Value {
        let output = self.call(command, container, more);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let log = self.switch.printed();
        assert!(output.status.success(), "{command}: {printed}{errors}{log}");
        match printed.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        }
    }

    fn refused(&self, command: &str, container: &Namespace, more: &Value) -> Value {
        let output = self.call(command, container, more);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Kind of the kernel interface in a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Veth,
    Tap,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
        }
    }

    /// Returns the network configuration with this kind, and with more keys.
    fn with(self, more: &Value) -> Value {
        let mut config = json!({ "port": self.name() });
        let fields = config.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        config
    }
}

fn has_eth0(pod: &Namespace) -> bool {
    pod.ip(&["-brief", "link"]).contains("eth0")
}

/// Attaches two containers, which reach one another, and removes them.
fn attach_and_remove(kind: Kind) {
    let runtime = Runtime::new(&format!("cni-{}", kind.name()));
    let plain = kind.with(&json!({}));
    let pods = ["a", "b"].map(|pod| Namespace::new(&format!("cni-{}-{pod}", kind.name())));
    runtime.done("STATUS", &pods[0], &plain);
    // An interface of the container with this name stays, also if it is a tap that the switch could use.
    pods[0].ip(&["tuntap", "add", "dev", "eth0", "mode", "tap"]);
    runtime.give(pods[0].name(), "10.66.0.9");
    let occupied = runtime.refused("ADD", &pods[0], &plain);
    let code = match kind {
        Kind::Veth => 100,
        Kind::Tap => 7,
    };
    assert_eq!(occupied["code"], code, "{occupied}");
    assert!(runtime.switch.ports().is_empty());
    pods[0].ip(&["link", "delete", "eth0"]);

    let own_index = match kind {
        Kind::Veth => 1,
        Kind::Tap => 0,
    };
    let results = [0, 1].map(|index| {
        let pod = &pods[index];
        runtime.give(pod.name(), &format!("10.66.0.{}", index + 2));
        let mac = json!({ "runtimeConfig": { "mac": format!("02:00:00:00:00:0{index}") } });
        runtime.done("ADD", pod, &kind.with(&mac))
    });
    for (index, (pod, result)) in pods.iter().zip(&results).enumerate() {
        let interfaces = result["interfaces"].as_array().unwrap();
        assert_eq!(interfaces.len(), own_index + 1);
        let own = &interfaces[own_index];
        assert_eq!(own["name"], "eth0");
        assert_eq!(own["mtu"], 1400);
        assert_eq!(own["mac"], format!("02:00:00:00:00:0{index}"));
        let shown = pod.ip(&["link", "show", "eth0"]);
        assert!(shown.contains("mtu 1400 "), "{shown}");
        assert!(shown.contains(own["mac"].as_str().unwrap()), "{shown}");
        let routes = pod.ip(&["route"]);
        assert!(
            routes.contains("default via 10.66.0.1 dev eth0"),
            "{routes}"
        );
        assert_eq!(result["ips"][0]["interface"], own_index);
        runtime.done("CHECK", pod, &kind.with(&json!({ "prevResult": result })));
    }
    ping(&pods[0], "10.66.0.3");

    let again = runtime.refused("ADD", &pods[0], &plain);
    assert!(
        again["msg"].as_str().unwrap().contains("already"),
        "{again}"
    );
    pods[1].ip(&["addr", "flush", "dev", "eth0"]);
    let made = kind.with(&json!({ "prevResult": results[1] }));
    let changed = runtime.refused("CHECK", &pods[1], &made);
    assert_eq!(changed["code"], 101, "{changed}");
    assert!(
        changed["msg"].as_str().unwrap().contains("10.66.0.3"),
        "{changed}"
    );

    runtime.done("DEL", &pods[0], &plain);
    assert!(!has_eth0(&pods[0]));
    assert_eq!(runtime.switch.ports().len(), 1);
    // What is not valid any more is collected.
    let valid = kind.with(&json!({ "ipam": {}, "cni.dev/valid-attachments": [] }));
    runtime.done("GC", &pods[0], &valid);
    assert!(runtime.switch.ports().is_empty());
    assert!(!has_eth0(&pods[1]));
    runtime.done("DEL", &pods[1], &plain);
    ended_before_del(&runtime, kind, &pods[0]);
    assert_eq!(runtime.switch.end(), Some(0));
}

/// Attaches a container whose namespace then ends without DEL. An interface of the node shows until when the kernel keeps the namespace: it
/// is deleted with its other end in the container.
fn ended_before_del(runtime: &Runtime, kind: Kind, pod: &Namespace) {
    let plain = kind.with(&json!({}));
    runtime.give(pod.name(), "10.66.0.2");
    runtime.done("ADD", pod, &plain);
    let host = &runtime.host;
    host.ip(&[
        "link",
        "add",
        "shown0",
        "type",
        "veth",
        "peer",
        "name",
        "other0",
        "netns",
        pod.name(),
    ]);
    let is_shown = || host.ip(&["-brief", "link"]).contains("shown0@");
    let is_gone = || (!is_shown()).then_some(());
    assert!(is_shown());
    let state = || runtime.switch.ports()[0]["state"].clone();
    until("the port is up", || (state() == "up").then_some(()));
    run(Command::new("ip").args(["netns", "delete", pod.name()]));
    match kind {
        Kind::Veth => {
            until("the namespace ends", is_gone);
            until("the port is down", || (state() == "down").then_some(()));
        }
        Kind::Tap => assert_eq!(state(), "up"),
    }
    runtime.done("DEL", pod, &plain);
    assert!(runtime.switch.ports().is_empty());
    until("the namespace ends", is_gone);
}

#[test]
fn containers_that_the_plugin_attaches_reach_one_another_until_they_are_removed() {
    attach_and_remove(Kind::Veth);
}

#[test]
fn containers_with_taps_reach_one_another_until_they_are_removed() {
    attach_and_remove(Kind::Tap);
}

/// The application of each pod is a switch that joins the pod's socket with an interface of its kernel. The second pod has the socket of a
/// device, whose port is in no bridge before.
#[test]
fn pods_with_memif_sockets_reach_one_another() {
    let runtime = Runtime::new("cni-memif");
    let pods = ["cni-m1", "cni-m2"].map(Namespace::new);
    let sockets = runtime.directory.path().join("sockets");
    let memif = json!({ "port": "memif", "mtu": null, "socketDirectory": sockets });
    let mut of_device = memif.clone();
    of_device["deviceID"] = json!("fast-0");
    let device = runtime.directory.path().join("device.sock");
    let uri = format!("memif:{}?role=server", device.display());
    runtime.switch.change(&["add", "port", "pod-fast-0", &uri]);
    let configs = [&memif, &of_device];
    let applications = [0, 1].map(|index| {
        let pod = &pods[index];
        runtime.give(pod.name(), &format!("10.66.0.{}", index + 2));
        let result = runtime.done("ADD", pod, configs[index]);
        let named = result["interfaces"][0]["socketPath"].as_str().unwrap();
        let socket = match index {
            0 => named,
            // The device plugin mounts it there in containers.
            _ => {
                assert_eq!(named, "/run/quietwire/fast-0/memif.sock");
                device.to_str().unwrap()
            }
        };
        let directory = TempDir::new().unwrap();
        let ports = [
            ("net", format!("memif:{socket}?role=client")),
            ("own", "tap:net0".to_owned()),
        ];
        let crossed = ["--cross-connect", "net,own"];
        let switch = Switch::start(pod, directory.path(), &ports, &crossed);
        let address = result["ips"][0]["address"].as_str().unwrap();
        pod.ip(&["address", "add", address, "dev", "net0"]);
        pod.ip(&["link", "set", "net0", "up"]);
        (switch, directory)
    });
    for (switch, _) in &applications {
        until("the socket has a peer", || {
            (switch.port("net")["state"] == "connected").then_some(())
        });
    }
    ping(&pods[0], "10.66.0.3");
    for (switch, _directory) in applications {
        assert_eq!(switch.end(), Some(0));
    }
    for (pod, config) in pods.iter().zip(configs) {
        runtime.done("DEL", pod, config);
    }
    // The device plugin closes it.
    assert_eq!(runtime.switch.ports().len(), 1);
    assert_eq!(runtime.switch.port("pod-fast-0")["group"], "lan");
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
    assert_eq!(runtime.switch.end(), Some(0));
}

/// Calls the plugin in the namespace of a node, for an interface of the node.
fn call_on_node(node: &Namespace, pod: &Namespace, command: &str, more: &Value) -> (bool, Value) {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "uplinks", "type": "quietwire", "port": "host-device", "device": "v0",
        "runtimeConfig": { "ips": ["10.66.0.9/24"] },
    });
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let mut child = node
        .command(quietwire())
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", pod.name())
        .env("CNI_NETNS", format!("/run/netns/{}", pod.name()))
        .env("CNI_IFNAME", "net1")
        .env("CNI_PATH", "/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(config.to_string().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.success(), printed)
}

#[test]
fn an_interface_of_the_node_is_in_the_container_until_it_is_removed() {
    let node = Namespace::with_pairs("cni-node");
    let pod = Namespace::new("cni-dev");
    let none = json!({});
    let call = |command: &str, more: &Value| call_on_node(&node, &pod, command, more);
    let done = |command: &str, more: &Value| {
        let (is_done, printed) = call(command, more);
        assert!(is_done, "{command}: {printed}");
        printed
    };
    let is_on_node = || node.ip(&["-brief", "link"]).contains("v0@");
    done("STATUS", &none);
    let result = done("ADD", &none);
    assert_eq!(result["interfaces"][0]["name"], "net1");
    assert!(!is_on_node());
    let addresses = pod.ip(&["address", "show", "dev", "net1"]);
    assert!(addresses.contains("inet 10.66.0.9/24 "), "{addresses}");
    done("CHECK", &json!({ "prevResult": result }));
    // Neither a second interface of this name nor another container's device changes what is there.
    for more in [none.clone(), json!({ "device": "v2" })] {
        let (is_done, refusal) = call("ADD", &more);
        assert!(!is_done && refusal["code"] == 7, "{refusal}");
    }
    assert!(pod.ip(&["address"]).contains("10.66.0.9/24"));

    done("DEL", &none);
    assert!(is_on_node());
    assert!(!pod.ip(&["-brief", "link"]).contains("net1"));
    done("DEL", &none);
    // The kernel refuses multicast addresses of IPv6, after the interface was moved.
    let refused = json!({ "runtimeConfig": { "ips": ["ff02::5/64"] } });
    assert!(!call("ADD", &refused).0);
    assert!(is_on_node());

    // What the kernel does when the namespace of an interface of a card ends.
    done("ADD", &none);
    pod.ip(&["link", "set", "net1", "netns", node.name()]);
    assert!(node.ip(&["-brief", "link"]).contains("net1@"));
    let own = json!([{ "containerID": pod.name(), "ifname": "net1" }]);
    done("GC", &json!({ "cni.dev/valid-attachments": own }));
    assert!(!is_on_node());
    done("GC", &json!({ "cni.dev/valid-attachments": [] }));
    assert!(is_on_node());
    let shown = node.ip(&["link", "show", "v0"]);
    assert!(!shown.contains("alias"), "{shown}");

    // A container that gets it before GC leaves it with its first name.
    done("ADD", &none);
    pod.ip(&["link", "set", "net1", "netns", node.name()]);
    done("ADD", &json!({ "device": "net1" }));
    done("DEL", &none);
    assert!(is_on_node());

    // The container changes the former name in the alias.
    done("ADD", &none);
    let shown = pod.ip(&["link", "show", "net1"]);
    let (_, alias) = shown.split_once("alias ").unwrap();
    let changed = alias.lines().next().unwrap().replace(" v0", " v9");
    pod.ip(&["link", "set", "net1", "alias", changed.as_str()]);
    assert!(pod.ip(&["link", "show", "net1"]).contains(" v9"));
    done("DEL", &none);
    assert!(is_on_node());

    // Another interface has its name meanwhile.
    done("ADD", &none);
    node.ip(&["link", "set", "v2", "down", "name", "v0"]);
    done("DEL", &none);
    let names = node.ip(&["-brief", "link"]);
    assert!(names.contains("dev0@v1"), "{names}");
}

#[test]
fn failed_attachments_of_the_plugin_leave_nothing() {
    let runtime = Runtime::new("cni-none");
    let pod = Namespace::new("cni-c");
    runtime.give(pod.name(), "10.66.0.2");
    let address = runtime.directory.path().join(pod.name());
    let refused = runtime.refused("ADD", &pod, &json!({ "bridge": "wan" }));
    assert_eq!(refused["code"], 100, "{refused}");
    assert!(
        refused["msg"].as_str().unwrap().contains("wan"),
        "{refused}"
    );
    // The address was released.
    assert!(!address.exists());
    // An address that the kernel refuses, after the port was added.
    for kind in [Kind::Veth, Kind::Tap] {
        runtime.give(pod.name(), "224.0.0.1");
        let refused = runtime.refused("ADD", &pod, &kind.with(&json!({})));
        assert_eq!(refused["code"], 5, "{refused}");
        assert!(runtime.switch.ports().is_empty());
        assert!(!has_eth0(&pod));
    }
    let unavailable = runtime.refused("STATUS", &pod, &json!({ "bridge": "wan" }));
    assert_eq!(unavailable["code"], 50, "{unavailable}");
    assert_eq!(runtime.switch.end(), Some(0));
}
