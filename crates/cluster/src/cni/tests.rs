// SPDX-License-Identifier: Apache-2.0
//! The commands with a switch and an IPAM plugin of their own.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use quietwire_switch::config::{AddPort, is_port_name};
use serde_json::{Value, json};

use super::config::Ipam;
use super::fake::{FakeSwitch, memif};
use super::record::{AttachmentLock, Record};
use super::verbs::execute;
use super::*;

/// A directory with an IPAM plugin, which records the commands of its calls in `calls`, and its input in `input`.
struct Rig(tempfile::TempDir);

impl Rig {
    fn new(plugin: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("addresses");
        let script = format!(
            "#!/bin/sh\ncd {}\necho $CNI_COMMAND >> calls\ncat > input\n{plugin}\n",
            directory.path().display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn config(&self, more: &Value) -> String {
        let mut config = json!({
            "cniVersion": "1.1.0",
            "name": "lan-a",
            "type": "quietwire",
            "bridge": "lan",
            "port": "memif",
            "socketDirectory": self.path().join("sockets"),
            "ipam": { "type": "addresses", "subnet": "10.0.0.0/24" },
        });
        let config = config.as_object_mut().unwrap();
        for (key, value) in more.as_object().unwrap() {
            config.insert(key.clone(), value.clone());
        }
        json!(config).to_string()
    }

    fn environment(&self, command: &str) -> Environment {
        let path = self.path().display().to_string();
        Environment::read(&|name| match name {
            "CNI_COMMAND" => Some(command.to_owned()),
            "CNI_CONTAINERID" => Some("pod-1".to_owned()),
            "CNI_NETNS" => Some("/run/netns/pod-1".to_owned()),
            "CNI_IFNAME" => Some("net1".to_owned()),
            "CNI_PATH" => Some(path.clone()),
            _ => None,
        })
        .unwrap()
    }

    fn call(&self, command: &str, more: &Value, switch: &FakeSwitch) -> Result<Value, CniError> {
        let input = self.config(more);
        let config = NetworkConfig::parse(&input).unwrap();
        let text = execute(&self.environment(command), &config, &input, &switch)?;
        Ok(match text.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        })
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path().join("calls")).unwrap_or_default()
    }
}

const ADDRESS: &str = r#"echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["10.0.0.1"]}}'"#;

#[test]
fn a_vrf_requires_an_interface_of_its_own_on_the_bridge_and_the_vlan() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    for (more, what) in [
        (
            json!({ "vrf": "red" }),
            "no interface of VRF 'red' is on bridge 'lan' ",
        ),
        (
            json!({ "vrf": "blue", "vlan": 7 }),
            "no interface of VRF 'blue' is on bridge 'lan' in VLAN 7 ",
        ),
    ] {
        let error = rig.call("ADD", &more, &switch).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TryAgain as u64);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(
        (rig.calls(), switch.ports.borrow().len()),
        (String::new(), 0)
    );
    rig.call("ADD", &json!({ "vrf": "blue" }), &switch).unwrap();
    assert_eq!(switch.ports.borrow().len(), 1);
    let device = json!({ "port": "host-device", "bridge": "", "device": "eth1", "vrf": "blue" });
    let error = NetworkConfig::parse(&rig.config(&device)).unwrap_err();
    assert!(error.to_string().contains("vrf"), "{error}");
}

#[test]
fn addresses_of_a_network_require_a_pod_and_an_agent() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    let socket = rig.path().join("absent.sock");
    let more = |network: &str| json!({ "ipam": { "type": "quietwire", "network": network, "socket": socket } });
    let error = NetworkConfig::parse(&rig.config(&more("lan"))).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("'lan' is not NAMESPACE/NAME of a Network"),
        "{message}"
    );

    let more = more("apps/lan");
    let error = rig.call("ADD", &more, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidEnvironment as u64);
    assert!(error.to_string().contains("K8S_POD_NAMESPACE"), "{error}");

    let pod = ["K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID"];
    let environment = Environment {
        arguments: pod.map(|name| (name.to_owned(), "apps".to_owned())).into(),
        ..rig.environment("ADD")
    };
    let input = rig.config(&more);
    let config = NetworkConfig::parse(&input).unwrap();
    let error = execute(&environment, &config, &input, &&switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TryAgain as u64);
    assert!(switch.ports.borrow().is_empty());

    // The addresses are removed with the pod, so that the end of a pod waits for no agent.
    rig.call("DEL", &more, &switch).unwrap();
    let error = rig.call("STATUS", &more, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotAvailable as u64);
    assert_eq!(rig.calls(), "");
}

#[test]
fn routes_of_a_network_are_those_of_its_configuration() {
    let rig = Rig::new("");
    let parse = |routes: Value| {
        let ipam = json!({ "type": "quietwire", "network": "apps/lan", "routes": routes });
        NetworkConfig::parse(&rig.config(&json!({ "ipam": ipam })))
    };
    let config = parse(json!([{ "dst": "10.0.0.0/8", "gw": "10.66.0.1" }, { "dst": "::/0" }]));
    let ipam = config.unwrap().ipam.unwrap();
    let Ipam::Agent(agent) = &ipam else {
        panic!("{ipam:?}");
    };
    let destinations = agent.routes.iter().map(|route| route.dst.to_string());
    assert_eq!(destinations.collect::<Vec<_>>(), ["10.0.0.0/8", "::/0"]);
    assert!(parse(json!([{ "dst": "10.0.0.0" }])).is_err());
}

#[test]
fn an_attachment_is_a_port_that_del_removes() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    let info = rig.path().join("info/file.json");
    let more = json!({ "vlan": 7, "runtimeConfig": { "CNIDeviceInfoFile": info } });
    let result = rig.call("ADD", &more, &switch).unwrap();
    let name = port::name("lan-a", "pod-1", "net1");
    assert_eq!(name.len(), 15);
    let socket = rig.path().join("sockets").join(&name).join("memif.sock");
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{ "name": "net1", "sandbox": "/run/netns/pod-1", "socketPath": socket }],
            "ips": [{ "address": "10.0.0.5/24", "gateway": "10.0.0.1", "interface": 0 }],
            "routes": [{ "dst": "0.0.0.0/0" }],
            "dns": { "nameservers": ["10.0.0.1"] },
        })
    );
    let described: Value = serde_json::from_slice(&fs::read(&info).unwrap()).unwrap();
    assert_eq!(
        described["memif"],
        json!({ "role": "slave", "path": socket, "mode": "ethernet" })
    );
    {
        let ports = switch.ports.borrow();
        assert_eq!(ports[0].name, name);
        assert_eq!(
            ports[0].uri,
            format!("memif:{}?role=server", socket.display())
        );
        assert_eq!(ports[0].bridge.as_deref(), Some("lan"));
        assert_eq!(ports[0].bridging.access.unwrap().get(), 7);
    }
    // The agent can add the same port again.
    let record = port::record_in(&rig.path().join("sockets"), &name);
    let attached = Record::read(&record).unwrap().attached.unwrap();
    assert_eq!(switch.ports.borrow()[0], attached.port);
    assert_eq!(attached.interface, None);
    assert_eq!(attached.ips[0].address.to_string(), "10.0.0.5/24");
    assert_eq!(attached.routes.len(), 1);
    // The IPAM plugin has the whole configuration.
    let input = fs::read_to_string(rig.path().join("input")).unwrap();
    assert!(input.contains("10.0.0.0/24"), "{input}");

    let again = rig.call("ADD", &more, &switch).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    rig.call(
        "CHECK",
        &json!({ "vlan": 7, "prevResult": result }),
        &switch,
    )
    .unwrap();
    rig.call("DEL", &json!({}), &switch).unwrap();
    rig.call("DEL", &json!({}), &switch).unwrap();
    assert!(switch.ports.borrow().is_empty());
    assert!(!socket.parent().unwrap().exists());
    assert_eq!(rig.calls(), "ADD\nCHECK\nDEL\nDEL\n");
    let gone = rig.call("CHECK", &json!({ "prevResult": result }), &switch);
    assert_eq!(gone.unwrap_err().code(), ErrorCode::Changed as u64);
}

#[test]
fn interfaces_in_containers_have_the_settings_of_the_attachment() {
    let rig = Rig::new("");
    let uri = |more: &Value| {
        let config = NetworkConfig::parse(&rig.config(more)).unwrap();
        let mac = config.mac(&rig.environment("ADD")).unwrap();
        port::port(&config, &rig.environment("ADD"), mac).uri
    };
    let name = port::name("lan-a", "pod-1", "net1");
    let ends = [
        (
            "veth",
            format!("veth:{name}?netns=/run/netns/pod-1&peer=net1"),
            "peer-mac",
        ),
        ("tap", "tap:net1?netns=/run/netns/pod-1".to_owned(), "mac"),
    ];
    for (kind, plain, mac) in ends {
        assert_eq!(uri(&json!({ "port": kind })), plain);
        let full = uri(&json!({
            "port": kind, "mtu": 1400, "queues": 2, "runtimeConfig": { "mac": "02:00:00:00:00:01" },
        }));
        assert_eq!(
            full,
            format!("{plain}&mtu=1400&{mac}=02:00:00:00:00:01&queues=2")
        );
    }
}

#[test]
fn a_tap_in_a_container_that_does_not_exist_asks_for_no_address() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    let tap = json!({ "port": "tap" });
    let error = rig.call("ADD", &tap, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownContainer as u64);
    assert!(switch.ports.borrow().is_empty());
    assert_eq!(rig.calls(), "");
    // DEL requires no container.
    rig.call("DEL", &tap, &switch).unwrap();
    assert_eq!(rig.calls(), "DEL\n");
}

#[test]
fn a_port_that_the_switch_refuses_leaves_neither_address_nor_directory() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch {
        refuses: true,
        ..FakeSwitch::default()
    };
    let error = rig.call("ADD", &json!({}), &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Refused as u64);
    assert_eq!(rig.calls(), "ADD\nDEL\n");
    let left: Vec<_> = fs::read_dir(rig.path().join("sockets")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_port_whose_addition_has_no_reply_is_removed() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch {
        loses_reply: true,
        ..FakeSwitch::default()
    };
    let error = rig.call("ADD", &json!({}), &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Io as u64);
    assert!(switch.ports.borrow().is_empty());
    assert_eq!(rig.calls(), "ADD\nDEL\n");
    let left: Vec<_> = fs::read_dir(rig.path().join("sockets")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_second_add_at_the_same_time_changes_nothing() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch {
        loses_reply: true,
        ..FakeSwitch::default()
    };
    // The first one has added its port, and its reply is lost.
    let sockets = rig.path().join("sockets");
    let name = port::name("lan-a", "pod-1", "net1");
    let lock = AttachmentLock::acquire(&sockets, &name, Duration::ZERO);
    let lock = lock.unwrap().unwrap();
    let config = NetworkConfig::parse(&rig.config(&json!({}))).unwrap();
    let added = port::port(&config, &rig.environment("ADD"), None);
    (&switch).add_port(added).unwrap_err();
    let record = Record::new(&config, Path::new("/run/netns/pod-1"));
    record.write(&port::record(&config, &name)).unwrap();
    let error = rig.call("ADD", &json!({}), &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TryAgain as u64);
    assert!(error.to_string().contains("has not ended"), "{error}");
    // Neither its port nor its addresses are touched.
    assert_eq!(switch.ports.borrow().len(), 1);
    assert_eq!(rig.calls(), "");
    // GC leaves it, although the runtime does not list it yet.
    let gc = json!({ "ipam": {}, "cni.dev/valid-attachments": [] });
    rig.call("GC", &gc, &switch).unwrap();
    assert_eq!(switch.ports.borrow().len(), 1);
    drop(lock);
    rig.call("GC", &gc, &switch).unwrap();
    assert!(switch.ports.borrow().is_empty());
}

#[test]
fn a_port_of_another_program_stays() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch {
        has_rival: true,
        ..FakeSwitch::default()
    };
    let error = rig.call("ADD", &json!({}), &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Refused as u64);
    assert_eq!(switch.ports.borrow().len(), 1);
    assert_eq!(rig.calls(), "ADD\n");
    let name = port::name("lan-a", "pod-1", "net1");
    assert!(rig.path().join("sockets").join(name).exists());
}

#[test]
fn an_error_of_the_ipam_plugin_is_that_of_the_call() {
    let failing = r#"echo '{"code":11,"msg":"no address left","details":"10.0.0.0/24"}'; exit 1"#;
    let rig = Rig::new(failing);
    let switch = FakeSwitch::default();
    let error = rig.call("ADD", &json!({}), &switch).unwrap_err();
    assert_eq!(error.code(), 11);
    assert_eq!(error.to_string(), "no address left: 10.0.0.0/24");
    assert!(switch.ports.borrow().is_empty());
    for (plugin, code) in [
        ("exit 3", ErrorCode::Io),
        ("echo nonsense", ErrorCode::Decode),
    ] {
        let error = Rig::new(plugin).call("ADD", &json!({}), &switch);
        assert_eq!(error.unwrap_err().code(), code as u64, "{plugin}");
    }
    let absent = json!({ "ipam": { "type": "absent" } });
    let error = rig.call("ADD", &absent, &switch).unwrap_err();
    assert!(error.to_string().contains("absent not found"), "{error}");
}

#[test]
fn gc_removes_what_is_not_valid_of_its_network_only() {
    let rig = Rig::new("");
    let switch = FakeSwitch::default();
    let without = json!({ "ipam": {} });
    rig.call("ADD", &without, &switch).unwrap();
    let mut other = switch.ports.borrow()[0].clone();
    other.name = port::name("lan-b", "pod-1", "net1");
    switch.ports.borrow_mut().push(other.clone());
    let valid = |list: Value| json!({ "ipam": {}, "cni.dev/valid-attachments": list });
    let own = json!([{ "containerID": "pod-1", "ifname": "net1" }]);
    rig.call("GC", &valid(own), &switch).unwrap();
    assert_eq!(switch.ports.borrow().len(), 2);
    let another = json!([{ "containerID": "pod-1", "ifname": "net2" }]);
    rig.call("GC", &valid(another), &switch).unwrap();
    assert_eq!(*switch.ports.borrow(), [other]);
    let error = rig.call("GC", &without, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig as u64);
}

#[test]
fn gc_removes_records_without_ports() {
    let rig = Rig::new("");
    let switch = FakeSwitch::default();
    rig.call("ADD", &json!({ "ipam": {} }), &switch).unwrap();
    // The switch has ended, and its ports with it.
    switch.ports.borrow_mut().clear();
    let count = || fs::read_dir(rig.path().join("sockets")).unwrap().count();
    assert_eq!(count(), 2);
    let gc = json!({ "ipam": {}, "cni.dev/valid-attachments": [] });
    rig.call("GC", &gc, &switch).unwrap();
    assert_eq!(count(), 0);
}

#[test]
fn gc_leaves_ports_of_another_network_with_the_same_prefix() {
    let rig = Rig::new("");
    let mut prefixes = HashMap::new();
    let (one, other) = (0..)
        .map(|number| format!("lan-{number}"))
        .find_map(|name| {
            let earlier = prefixes.insert(port::prefix(&name), name.clone())?;
            Some((earlier, name))
        })
        .unwrap();
    let switch = FakeSwitch::default();
    for name in [&one, &other] {
        let more = json!({ "name": name, "ipam": {} });
        rig.call("ADD", &more, &switch).unwrap();
    }
    let gc = json!({ "name": one, "ipam": {}, "cni.dev/valid-attachments": [] });
    rig.call("GC", &gc, &switch).unwrap();
    let left: Vec<String> = switch
        .ports
        .borrow()
        .iter()
        .map(|port| port.name.clone())
        .collect();
    assert_eq!(left, [port::name(&other, "pod-1", "net1")]);
}

#[test]
fn gc_understands_the_lists_of_libcni() {
    let rig = Rig::new("");
    let switch = FakeSwitch::default();
    rig.call("ADD", &json!({ "ipam": {} }), &switch).unwrap();
    // It gives each list by two names, and an empty one as null.
    let gc = |list: Value| {
        let more = json!({
            "ipam": {}, "cni.dev/valid-attachments": list.clone(), "cni.dev/attachments": list,
        });
        rig.call("GC", &more, &switch).unwrap();
        switch.ports.borrow().len()
    };
    let own = json!([{ "containerID": "pod-1", "ifname": "net1" }]);
    assert_eq!(gc(own), 1);
    assert_eq!(gc(Value::Null), 0);
}

#[test]
fn the_device_of_an_attachment_is_that_of_the_network_or_of_the_pod() {
    let rig = Rig::new("");
    let device = |more: &Value| {
        let mut all = json!({ "port": "host-device", "bridge": "" });
        let fields = all.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let config = NetworkConfig::parse(&rig.config(&all)).unwrap();
        config.host_device().map(str::to_owned)
    };
    let of_network = json!({ "device": "eth1", "deviceID": "0000:17:02.1" });
    assert_eq!(device(&of_network).unwrap(), "eth1");
    let of_pod = json!({ "deviceID": "0000:17:02.1" });
    assert_eq!(device(&of_pod).unwrap(), "0000:17:02.1");
    let error = device(&json!({})).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig as u64);
}

#[test]
fn a_device_of_the_pod_that_multus_names_changes_nothing() {
    let rig = Rig::new("");
    let veth = json!({ "port": "veth", "deviceID": "memif-0", "pciBusID": "memif-0" });
    let with = NetworkConfig::parse(&rig.config(&veth)).unwrap();
    assert_eq!((with.socket_device(), with.bridge.as_str()), (None, "lan"));
}

/// Returns the port of a device as the device plugin has opened it.
fn of_device_plugin() -> AddPort {
    AddPort {
        uri: "memif:/run/devices/fast-0/memif.sock?role=server".to_owned(),
        bridge: Some("wan".to_owned()),
        ..memif("pod-fast-0")
    }
}

#[test]
fn a_socket_of_the_device_plugin_is_the_port_of_the_attachment() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    let info = rig.path().join("info/file.json");
    let more = json!({
        "vlan": 7, "queues": 2, "deviceID": "fast-0", "pciBusID": "fast-0",
        "runtimeConfig": { "CNIDeviceInfoFile": info },
    });
    // The switch was started again, and the agent has not opened the port yet.
    let error = rig.call("ADD", &more, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TryAgain as u64);
    switch.ports.borrow_mut().push(of_device_plugin());
    let other = json!({ "port": "vhost-user", "deviceID": "fast-0" });
    let error = rig.call("ADD", &other, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig as u64);
    assert_eq!(rig.calls(), "");

    let result = rig.call("ADD", &more, &switch).unwrap();
    let socket = "/run/quietwire/fast-0/memif.sock";
    assert_eq!(result["interfaces"][0]["socketPath"], socket);
    assert_eq!(result["ips"][0]["address"], "10.0.0.5/24");
    let described: Value = serde_json::from_slice(&fs::read(&info).unwrap()).unwrap();
    assert_eq!(described["memif"]["path"], socket);
    let ports = switch.ports.borrow().clone();
    let uri = "memif:/run/devices/fast-0/memif.sock?role=server&queues=2";
    assert_eq!((ports.len(), ports[0].uri.as_str()), (1, uri));
    assert_eq!(ports[0].name, "pod-fast-0");
    assert_eq!(ports[0].bridge.as_deref(), Some("lan"));
    assert_eq!(ports[0].bridging.access.unwrap().get(), 7);
    let sockets = rig.path().join("sockets");
    let recorded = pod_device::recorded_port(&sockets, "fast-0").unwrap();
    assert_eq!(recorded.as_ref(), ports.first());

    let again = rig.call("ADD", &more, &switch).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    let check = json!({ "prevResult": result });
    rig.call("CHECK", &check, &switch).unwrap();
    // The device may be another pod's by now: its port is left to the device plugin.
    rig.call("DEL", &more, &switch).unwrap();
    assert_eq!(*switch.ports.borrow(), ports);
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
    let gone = rig.call("CHECK", &check, &switch).unwrap_err();
    assert_eq!(gone.code(), ErrorCode::Changed as u64);
    assert_eq!(rig.calls(), "ADD\nCHECK\nDEL\n");
}

#[test]
fn a_device_whose_port_cannot_be_replaced_leaves_neither_address_nor_record() {
    let rig = Rig::new(ADDRESS);
    let mut switch = FakeSwitch {
        refuses: true,
        ..FakeSwitch::default()
    };
    switch.ports.borrow_mut().push(of_device_plugin());
    let more = json!({ "deviceID": "fast-0" });
    let error = rig.call("ADD", &more, &switch).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Refused as u64);
    assert_eq!(rig.calls(), "ADD\nDEL\n");
    let sockets = rig.path().join("sockets");
    assert_eq!(fs::read_dir(sockets).unwrap().count(), 0);
    // The agent opens it again, and is faster than the plugin in the network.
    switch.refuses = false;
    switch.has_rival = true;
    switch.ports.borrow_mut().push(of_device_plugin());
    rig.call("ADD", &more, &switch).unwrap();
    assert_eq!(switch.ports.borrow().len(), 1);
}

#[test]
fn status_asks_for_the_bridge_and_for_addresses() {
    let rig = Rig::new("");
    let switch = FakeSwitch::default();
    rig.call("STATUS", &json!({}), &switch).unwrap();
    assert_eq!(rig.calls(), "STATUS\n");
    let error = rig.call("STATUS", &json!({ "bridge": "wan" }), &switch);
    let error = error.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotAvailable as u64);
    assert!(error.to_string().contains("bridge wan"), "{error}");
}

#[test]
fn without_a_switch_del_succeeds_and_others_fail() {
    let rig = Rig::new("");
    let socket = rig.path().join("absent.sock");
    let config = rig.config(&json!({ "controlSocket": socket, "ipam": {} }));
    let call = |command: &'static str| {
        let path = rig.path().display().to_string();
        let variables = move |name: &str| match name {
            "CNI_COMMAND" => Some(command.to_owned()),
            "CNI_CONTAINERID" => Some("pod-1".to_owned()),
            "CNI_NETNS" => Some("/run/netns/pod-1".to_owned()),
            "CNI_IFNAME" => Some("net1".to_owned()),
            "CNI_PATH" => Some(path.clone()),
            _ => None,
        };
        run(&variables, &config)
    };
    assert_eq!(call("DEL").unwrap(), "");
    assert_eq!(call("ADD").unwrap_err().code(), ErrorCode::TryAgain as u64);
    let status = call("STATUS").unwrap_err();
    assert_eq!(status.code(), ErrorCode::NotAvailable as u64);
    let versions: Value = serde_json::from_str(&call("VERSION").unwrap()).unwrap();
    assert_eq!(versions["supportedVersions"], json!(["1.0.0", "1.1.0"]));
}

#[test]
fn faults_of_a_configuration_are_named() {
    let rig = Rig::new("");
    for (more, code, part) in [
        (
            json!({ "cniVersion": "0.3.1" }),
            ErrorCode::IncompatibleVersion,
            "0.3.1",
        ),
        (
            json!({ "name": "-a" }),
            ErrorCode::InvalidConfig,
            "name: '-a'",
        ),
        (
            json!({ "bridge": null }),
            ErrorCode::InvalidConfig,
            "invalid type: null",
        ),
        (json!({ "vlan": 4095 }), ErrorCode::InvalidConfig, "4095"),
        (
            json!({ "brigde": "lan" }),
            ErrorCode::InvalidConfig,
            "brigde",
        ),
        (json!({ "mtu": 1400 }), ErrorCode::InvalidConfig, "mtu"),
        (json!({ "bridge": "" }), ErrorCode::InvalidConfig, "bridge:"),
        (
            json!({ "device": "eth1" }),
            ErrorCode::InvalidConfig,
            "port host-device",
        ),
        (
            json!({ "port": "host-device", "device": "eth1" }),
            ErrorCode::InvalidConfig,
            "ports of the switch",
        ),
        (
            json!({ "port": "host-device", "bridge": "", "device": "../net" }),
            ErrorCode::InvalidConfig,
            "'../net'",
        ),
        (
            json!({ "controlSocket": "a.sock" }),
            ErrorCode::InvalidConfig,
            "controlSocket",
        ),
        (
            json!({ "ipam": { "type": "../sh" } }),
            ErrorCode::InvalidConfig,
            "ipam.type",
        ),
        (
            json!({ "ipam": { "subnet": "10.0.0.0/8" } }),
            ErrorCode::InvalidConfig,
            "ipam.type",
        ),
    ] {
        let error = NetworkConfig::parse(&rig.config(&more)).unwrap_err();
        assert_eq!(error.code(), code as u64, "{more}: {error}");
        assert!(error.to_string().contains(part), "{more}: {error}");
    }
    let error = NetworkConfig::parse("{").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Decode as u64);
    let error = error.of_version("1.0.0").to_json();
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["cniVersion"], "1.0.0");
    assert_eq!(error["code"], 6);
}

#[test]
fn faults_of_the_environment_are_named() {
    let good = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "pod-1"),
        ("CNI_NETNS", "/run/netns/a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;MAC=02:00:00:00:00:01"),
    ];
    let read = |name: &'static str, value: &'static str| {
        Environment::read(&|asked| {
            let all = good.iter().find(|it| it.0 == asked);
            let own = (asked == name).then_some(value);
            own.or(all.map(|it| it.1)).map(str::to_owned)
        })
    };
    let sound = read("", "").unwrap();
    assert_eq!(sound.arguments["MAC"], "02:00:00:00:00:01");
    for (name, value) in [
        ("CNI_COMMAND", "add"),
        ("CNI_COMMAND", ""),
        ("CNI_CONTAINERID", ""),
        ("CNI_CONTAINERID", "a/b"),
        ("CNI_CONTAINERID", "-a"),
        ("CNI_NETNS", ""),
        ("CNI_NETNS", "run/netns/a"),
        ("CNI_NETNS", "/run/netns/a&persist=on"),
        ("CNI_IFNAME", ""),
        ("CNI_IFNAME", "sixteen-letters-"),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "a&b"),
        ("CNI_ARGS", "MAC"),
    ] {
        let error = read(name, value).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidEnvironment as u64);
        assert!(
            error.to_string().starts_with(name),
            "{name}={value}: {error}"
        );
    }
}

#[test]
fn an_attachment_with_a_damaged_record_is_removed() {
    let rig = Rig::new(ADDRESS);
    let switch = FakeSwitch::default();
    rig.call("ADD", &json!({}), &switch).unwrap();
    let name = switch.ports.borrow()[0].name.clone();
    let record = port::record_in(&rig.path().join("sockets"), &name);
    fs::write(&record, "{").unwrap();
    rig.call("DEL", &json!({}), &switch).unwrap();
    assert!(switch.ports.borrow().is_empty());
    assert!(!record.exists());
}

#[test]
fn ports_of_devices_have_names_that_the_switch_accepts() {
    let longest = format!("{}-255", "a".repeat(40));
    for id in ["memif-0", &longest] {
        assert!(is_port_name(&pod_device::port_name(id)), "{id}");
    }
}

proptest! {
    #[test]
    fn any_input_has_an_answer(input in ".{0,200}") {
        let variables = |name: &str| (name == COMMAND).then(|| "STATUS".to_owned());
        let error = run(&variables, &input).unwrap_err();
        prop_assert!(serde_json::from_str::<Value>(&error.to_json()).is_ok());
    }

    #[test]
    fn names_of_ports_are_those_of_interfaces(network in "[a-z]{1,9}", container in "[a-z0-9]{1,64}", interface in "[a-z]{1,5}[0-9]") {
        let name = port::name(&network, &container, &interface);
        prop_assert!(name.starts_with(&port::prefix(&network)));
        prop_assert_eq!(name.len(), 15);
        prop_assert!(is_port_name(&name));
        let other = port::name(&network, &container, &format!("{interface}0"));
        prop_assert_ne!(name, other);
    }
}
