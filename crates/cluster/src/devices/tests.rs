// SPDX-License-Identifier: Apache-2.0
//! The device plugin with a kubelet and a switch of the test, over real gRPC on Unix sockets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quietwire_base::wait_until;
use quietwire_host::machines;
use quietwire_switch::PORTS_MAX;
use quietwire_switch::config::AddPort;
use quietwire_switch::config::bridging::BridgingSetting;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::sockets::{Collected, GRACE, SharedSwitch};
use super::*;
use crate::cni::{CniError, ErrorCode, Switch, SwitchInterface, SwitchPort};
use crate::kubelet::KubeletPaths;
use crate::kubelet::messages::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Device, Empty,
    PreferredAllocationRequest, RegisterRequest,
};
use crate::kubelet::services::device_plugin::device_plugin_client::DevicePluginClient;
use crate::kubelet::services::registration::registration_server::{
    Registration, RegistrationServer,
};
use crate::runtime;

/// Time for everything that the test waits for.
const DEADLINE: Duration = Duration::from_secs(20);

/// A switch that keeps its ports in memory.
#[derive(Default)]
struct FakeSwitch {
    ports: Mutex<Vec<AddPort>>,
    /// A port that cannot be added.
    refused: Mutex<Option<String>>,
    /// A port that cannot be deleted.
    stuck: Mutex<Option<String>>,
    /// A task that runs while the next port is deleted.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl FakeSwitch {
    fn names(&self) -> Vec<String> {
        let ports = self.ports.lock().unwrap();
        ports.iter().map(|port| port.name.clone()).collect()
    }
}

impl Switch for FakeSwitch {
    fn add_port(&self, port: AddPort) -> Result<(), CniError> {
        if self.refused.lock().unwrap().as_ref() == Some(&port.name) {
            return Err(CniError::new(ErrorCode::Refused, "no memory"));
        }
        self.ports.lock().unwrap().push(port);
        Ok(())
    }

    fn delete_port(&self, name: &str) -> Result<bool, CniError> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        if self.stuck.lock().unwrap().as_deref() == Some(name) {
            return Err(CniError::new(ErrorCode::Refused, "no reply"));
        }
        let mut ports = self.ports.lock().unwrap();
        let before = ports.len();
        ports.retain(|port| port.name != name);
        Ok(ports.len() < before)
    }

    fn ports(&self) -> Result<Vec<SwitchPort>, CniError> {
        let port = |port: &AddPort| SwitchPort {
            name: port.name.clone(),
            uri: port.uri.clone(),
            group: "lan".to_owned(),
        };
        Ok(self.ports.lock().unwrap().iter().map(port).collect())
    }

    fn bridges(&self) -> Result<Vec<String>, CniError> {
        Ok(vec!["lan".to_owned()])
    }

    fn interfaces(&self) -> Result<Vec<SwitchInterface>, CniError> {
        Ok(Vec::new())
    }
}

fn config(directory: &Path, text: &str) -> DevicesConfig {
    let text = format!("socket-directory = \"{}\"\n{text}", directory.display());
    DevicesConfig::parse(&text).unwrap()
}

const MEMIF: &str = "[[resource]]\nname = \"memif\"\nkind = \"memif\"\ncount = 2\nbridge = \"lan\"\nvlan = 10\nnode = 1\n";

/// Returns a resource whose sockets are in `devices` of a root directory.
fn memif(root: &Path, switch: &Arc<FakeSwitch>) -> Resource {
    let config = config(&root.join("devices"), MEMIF);
    let switch: SharedSwitch = switch.clone();
    Resource::new(&config.resources[0], &config, root, &switch)
}

/// Returns the device-info file of a memif device.
fn description(root: &Path, id: &str) -> PathBuf {
    root.join("var/run/k8s.cni.cncf.io/devinfo/dp")
        .join(format!("quietwire.io-memif-{id}-device.json"))
}

fn ids(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the result of a round without failures that closed these devices.
fn closed(names: &[&str]) -> Collected {
    Collected {
        closed: ids(names),
        error: None,
    }
}

#[test]
fn mistakes_in_the_file_of_resources_are_named() {
    for (text, problem) in [
        (
            "name = \"a_b\"\nkind = \"memif\"\ncount = 1",
            "name: expected",
        ),
        (
            "name = \"a\"\nkind = \"memif\"",
            "count: expected 1 to 256, the maximum",
        ),
        (
            "name = \"a\"\nkind = \"memif\"\ncount = 1\nvlan = 2",
            "vlan requires bridge",
        ),
        (
            "name = \"a\"\nkind = \"function\"",
            "cards: name at least one",
        ),
        (
            "name = \"a\"\nkind = \"function\"\ncards = [\"0000:17:00.0\"]\ncount = 1",
            "keys of sockets",
        ),
        ("name = \"a\"\nkind = \"memif\"\ncount = 1\nfoo = 1", "foo"),
    ] {
        let error = DevicesConfig::parse(&format!("[[resource]]\n{text}\n")).unwrap_err();
        assert!(error.contains(problem), "{text}: {error}");
    }
    let error = DevicesConfig::parse(&format!(
        "[[resource]]\nname = \"a\"\nkind = \"memif\"\ncount = {}\n",
        PORTS_MAX + 1
    ));
    assert!(error.unwrap_err().contains("expected 1 to 256"));
    let twice = format!("{MEMIF}{MEMIF}");
    assert!(
        DevicesConfig::parse(&twice)
            .unwrap_err()
            .contains("exists twice")
    );
    let relative = format!("socket-directory = \"run\"\n{MEMIF}");
    assert!(
        DevicesConfig::parse(&relative)
            .unwrap_err()
            .starts_with("socket-directory: ")
    );
}

/// Returns a file with two resources of these numbers of sockets.
fn two_resources(first: usize, second: usize) -> String {
    let resource = |name: &str, kind: &str, count: usize| {
        format!("[[resource]]\nname = \"{name}\"\nkind = \"{kind}\"\ncount = {count}\n")
    };
    resource("a", "memif", first) + &resource("b", "vhost-user", second)
}

#[test]
fn all_sockets_together_are_at_most_the_ports_of_a_switch() {
    DevicesConfig::parse(&two_resources(PORTS_MAX - 1, 1)).unwrap();
    let error = DevicesConfig::parse(&two_resources(PORTS_MAX - 1, 2)).unwrap_err();
    assert_eq!(
        error,
        "count: the resources have 257 sockets, but a switch has at most 256 ports (lower count)"
    );
}

#[test]
fn sockets_that_the_switch_has_no_space_for_are_unhealthy() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    let healthy = || -> Vec<bool> {
        let devices = resource.devices();
        devices.iter().map(|device| device.is_healthy).collect()
    };
    assert_eq!(healthy(), [true, true]);
    for number in 1..PORTS_MAX {
        let other = AddPort {
            name: format!("uplink-{number}"),
            uri: "null:".to_owned(),
            rx_queues: None,
            tx_queues: None,
            rx_cpus: None,
            bridge: None,
            bridging: BridgingSetting::default(),
        };
        switch.add_port(other).unwrap();
    }
    assert_eq!(healthy(), [true, false]);
    // An open port stays healthy, and nothing is left for the other one.
    resource.allocate(&ids(&["memif-1"])).unwrap();
    assert_eq!(healthy(), [false, true]);
    switch.delete_port("uplink-1").unwrap();
    assert_eq!(healthy(), [true, true]);
}

#[test]
fn the_file_in_the_guide_is_valid() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kubernetes.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, block) = guide.split_once("\n```toml\n").unwrap();
    let (text, _) = block.split_once("\n```").unwrap();
    assert_eq!(DevicesConfig::parse(text).unwrap().resources.len(), 2);
}

#[test]
fn an_allocated_socket_is_a_port_with_its_bridge_and_vlan() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    let response = resource.allocate(&ids(&["memif-0", "memif-1"])).unwrap();
    assert_eq!(
        response.envs.get("QUIETWIRE_MEMIF").map(String::as_str),
        Some("/run/quietwire/memif-0/memif.sock,/run/quietwire/memif-1/memif.sock")
    );
    assert_eq!(response.mounts[1].container_path, "/run/quietwire/memif-1");
    assert_eq!(
        PathBuf::from(&response.mounts[1].host_path),
        directory.path().join("devices/memif-1")
    );
    let ports = switch.ports.lock().unwrap().clone();
    let socket = directory.path().join("devices/memif-0/memif.sock");
    assert_eq!(
        ports[0].uri,
        format!("memif:{}?role=server", socket.display())
    );
    assert_eq!(ports[0].bridge.as_deref(), Some("lan"));
    assert_eq!(ports[0].bridging.access.map(|vlan| vlan.get()), Some(10));
    // For Multus, with the path in the container.
    let described = std::fs::read(description(directory.path(), "memif-1")).unwrap();
    let described: Value = serde_json::from_slice(&described).unwrap();
    assert_eq!(
        described,
        json!({
            "type": "memif", "version": "1.1.0",
            "memif": { "role": "slave", "path": "/run/quietwire/memif-1/memif.sock", "mode": "ethernet" },
        })
    );
    // The container has ended, and kubelet gives the device to another.
    resource.allocate(&ids(&["memif-0"])).unwrap();
    assert_eq!(switch.names(), ["pod-memif-1", "pod-memif-0"]);
    let error = resource.allocate(&ids(&["memif-9"])).unwrap_err();
    assert_eq!(error, "no device memif-9 in resource 'memif'");
    // On its NUMA node, a scheduler finds the device that no container has.
    let used = [("quietwire.io/memif".to_owned(), "memif-0".to_owned())];
    let counts = DeviceCounts {
        capacity: 2,
        allocatable: 2,
        available: 1,
    };
    assert_eq!(resource.count(&used.into()), [(1, counts)].into());
}

#[test]
fn an_allocation_that_the_switch_refuses_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    *switch.refused.lock().unwrap() = Some("pod-memif-1".to_owned());
    let resource = memif(directory.path(), &switch);
    let error = resource
        .allocate(&ids(&["memif-0", "memif-1"]))
        .unwrap_err();
    assert_eq!(error, "no memory");
    assert_eq!(switch.names(), [""; 0]);
    let devices = directory.path().join("devices");
    assert_eq!(std::fs::read_dir(devices).unwrap().count(), 0);
    assert!(!description(directory.path(), "memif-0").exists());
}

#[test]
fn devices_that_no_container_has_are_collected_and_those_in_use_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    resource.allocate(&ids(&["memif-0", "memif-1"])).unwrap();
    let used: BTreeSet<String> = ids(&["memif-1"]).into_iter().collect();
    // kubelet does not list the pod yet.
    assert_eq!(resource.collect(&used, Instant::now()), closed(&[]));
    let later = Instant::now() + GRACE;
    assert_eq!(resource.collect(&used, later), closed(&["memif-0"]));
    assert_eq!(switch.names(), ["pod-memif-1"]);
    assert!(!directory.path().join("devices/memif-0").exists());
    assert!(!description(directory.path(), "memif-0").exists());
    assert!(description(directory.path(), "memif-1").exists());
    assert_eq!(resource.collect(&used, later), closed(&[]));
    // The switch is started again.
    switch.ports.lock().unwrap().clear();
    assert_eq!(resource.collect(&used, later), closed(&[]));
    assert_eq!(switch.names(), ["pod-memif-1"]);
    assert_eq!(
        resource.collect(&BTreeSet::new(), later),
        closed(&["memif-1"])
    );
    assert_eq!(switch.names(), [""; 0]);
}

#[test]
fn a_device_that_is_allocated_during_a_round_stays_open() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    let device = ids(&["memif-0"]);
    resource.allocate(&device).unwrap();
    // Its container has ended, and kubelet allocates it while the round closes it.
    let later = Instant::now() + GRACE;
    let (done, mut allocated) = mpsc::unbounded_channel();
    let (allocating, requested) = (resource.clone(), device.clone());
    *switch.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let allocation = thread::spawn(move || {
            let result = allocating.allocate(&requested);
            done.send(result).unwrap();
        });
        // It waits for the round: this time passes.
        wait_until(Duration::from_millis(50), || allocation.is_finished());
    }));
    assert_eq!(
        resource.collect(&BTreeSet::new(), later),
        closed(&["memif-0"])
    );
    allocated.blocking_recv().unwrap().unwrap();
    let is_open = || {
        let has_directory = directory.path().join("devices/memif-0").exists();
        has_directory && switch.names() == ["pod-memif-0"]
    };
    assert!(is_open());
    // The list of containers is older than the allocation, and has the former container or none.
    let listed = Instant::now();
    resource.allocate(&device).unwrap();
    for used in [device.into_iter().collect(), BTreeSet::new()] {
        assert_eq!(resource.collect(&used, listed), closed(&[]));
    }
    assert_eq!(
        resource.collect(&BTreeSet::new(), Instant::now()),
        closed(&[])
    );
    assert!(is_open());
}

#[test]
fn the_port_of_a_device_comes_back_in_the_network_of_its_pod() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    let device = ids(&["memif-0"]);
    resource.allocate(&device).unwrap();
    let records = directory.path().join("run/quietwire/cni");
    std::fs::create_dir_all(&records).unwrap();
    let attached = AddPort {
        bridge: Some("wan".to_owned()),
        ..switch.ports.lock().unwrap().remove(0)
    };
    let record = json!({
        "network": "wan", "port": "memif", "controlSocket": "/run/quietwire/switch.sock",
        "netns": "/run/netns/pod-1", "netnsDirectory": null, "boot": null, "device": attached,
    });
    let file = records.join("c0123456789abcd.network");
    std::fs::write(&file, record.to_string()).unwrap();
    let used: BTreeSet<String> = device.into_iter().collect();
    let again = || {
        switch.ports.lock().unwrap().clear();
        assert_eq!(resource.collect(&used, Instant::now()), closed(&[]));
        switch.ports.lock().unwrap().clone()
    };
    assert_eq!(again(), [attached]);
    // The attachment has ended.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(again()[0].bridge.as_deref(), Some("lan"));
}

#[test]
fn a_device_that_fails_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(directory.path(), &switch);
    let both = ids(&["memif-0", "memif-1"]);
    resource.allocate(&both).unwrap();
    let later = Instant::now() + GRACE;
    let failed = |devices: &[&str], error: &str| Collected {
        error: Some(error.to_owned()),
        ..closed(devices)
    };
    // The port of the first one cannot be closed.
    *switch.stuck.lock().unwrap() = Some("pod-memif-0".to_owned());
    let error = "device memif-0: no reply";
    let unused = BTreeSet::new();
    assert_eq!(
        resource.collect(&unused, later),
        failed(&["memif-1"], error)
    );
    assert_eq!(switch.names(), ["pod-memif-0"]);
    assert_eq!(resource.collect(&unused, later), failed(&[], error));
    *switch.stuck.lock().unwrap() = None;
    assert_eq!(resource.collect(&unused, later), closed(&["memif-0"]));
    // The port of the first one cannot be opened again.
    let used: BTreeSet<String> = both.into_iter().collect();
    *switch.refused.lock().unwrap() = Some("pod-memif-0".to_owned());
    let error = "device memif-0: no memory";
    assert_eq!(resource.collect(&used, later), failed(&[], error));
    assert_eq!(switch.names(), ["pod-memif-1"]);
    *switch.refused.lock().unwrap() = None;
    assert_eq!(resource.collect(&used, later), closed(&[]));
    assert_eq!(switch.names(), ["pod-memif-1", "pod-memif-0"]);
}

#[test]
fn virtual_functions_are_devices_with_their_node() {
    let root = tempfile::tempdir().unwrap();
    machines::two_packages_with_clusters()
        .write(root.path())
        .unwrap();
    let text =
        "[[resource]]\nname = \"fast-nic\"\nkind = \"function\"\ncards = [\"0000:17:00.0\"]\n";
    let config = DevicesConfig::parse(text).unwrap();
    let resource = resources(&config, root.path()).remove(0);
    let devices = resource.devices();
    let found: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    assert_eq!(found, ["0000:17:00.1", "0000:17:00.2"]);
    assert!(devices.iter().all(|device| device.node.is_some()));
    let response = resource.allocate(&ids(&["0000:17:00.2"])).unwrap();
    assert_eq!(
        response
            .envs
            .get("PCIDEVICE_QUIETWIRE_IO_FAST_NIC")
            .map(String::as_str),
        Some("0000:17:00.2")
    );
    assert!(resource.allocate(&ids(&["0000:ff:00.0"])).is_err());
}

/// The registration service of a kubelet.
struct FakeKubelet(mpsc::UnboundedSender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for FakeKubelet {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0
            .send(request.into_inner())
            .map_err(|_| Status::unavailable("the test has ended"))?;
        Ok(Response::new(Empty {}))
    }
}

/// Starts a kubelet. Like kubelet, it removes the sockets of all plugins first.
fn start_kubelet(
    directory: &Path,
    registered: &mpsc::UnboundedSender<RegisterRequest>,
) -> JoinHandle<()> {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
    let serving = Server::builder()
        .add_service(RegistrationServer::new(FakeKubelet(registered.clone())))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(async move { serving.await.unwrap() })
}

async fn client(directory: &Path, endpoint: &str) -> DevicePluginClient<Channel> {
    let uri = format!("unix://{}", directory.join(endpoint).display());
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    DevicePluginClient::new(channel)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap()
}

#[test]
fn kubelet_sees_the_devices_and_after_its_restart_they_are_registered_again() {
    let sockets = tempfile::tempdir().unwrap();
    let plugins = tempfile::tempdir().unwrap();
    let switch = Arc::new(FakeSwitch::default());
    let resource = memif(sockets.path(), &switch);
    let places = KubeletPaths {
        device_plugins: plugins.path().to_owned(),
        pod_resources: plugins.path().join("absent.sock"),
        ..KubeletPaths::default()
    };
    runtime().unwrap().block_on(async {
        let (registered, mut registrations) = mpsc::unbounded_channel();
        let kubelet = start_kubelet(plugins.path(), &registered);
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(vec![resource], places, stopped));
        let request = within(registrations.recv()).await.unwrap();
        assert_eq!(request.version, "v1beta1");
        assert_eq!(request.resource_name, "quietwire.io/memif");
        assert!(request.options.unwrap().get_preferred_allocation_available);

        let mut plugin = client(plugins.path(), &request.endpoint).await;
        let listed = within(plugin.list_and_watch(Empty {})).await.unwrap();
        let first = within(listed.into_inner().message())
            .await
            .unwrap()
            .unwrap();
        let device = |device: &Device| {
            let node = device
                .topology
                .as_ref()
                .map(|topology| topology.nodes[0].id);
            (device.id.clone(), device.health.clone(), node)
        };
        let devices: Vec<_> = first.devices.iter().map(device).collect();
        let expected = |id: &str| (id.to_owned(), "Healthy".to_owned(), Some(1));
        assert_eq!(devices, [expected("memif-0"), expected("memif-1")]);

        let request = PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_ids: ids(&["memif-0", "memif-1"]),
                must_include_device_ids: ids(&["memif-1"]),
                allocation_size: 1,
            }],
        };
        let preferred = within(plugin.get_preferred_allocation(request))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(preferred.container_responses[0].device_ids, ["memif-1"]);
        let request = |id: &str| AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                devices_ids: ids(&[id]),
            }],
        };
        let allocated = within(plugin.allocate(request("memif-1")))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(allocated.container_responses[0].mounts.len(), 1);
        assert_eq!(switch.names(), ["pod-memif-1"]);
        let refused = within(plugin.allocate(request("other"))).await.unwrap_err();
        assert!(refused.message().contains("no device other"), "{refused}");

        kubelet.abort();
        let kubelet = start_kubelet(plugins.path(), &registered);
        let again = within(registrations.recv()).await.unwrap();
        assert_eq!(again.resource_name, "quietwire.io/memif");
        let mut plugin = client(plugins.path(), &again.endpoint).await;
        within(plugin.get_device_plugin_options(Empty {}))
            .await
            .unwrap();
        // The device of the running container is still open.
        assert_eq!(switch.names(), ["pod-memif-1"]);

        stop.send(true).unwrap();
        within(serving).await.unwrap();
        kubelet.abort();
        assert!(!plugins.path().join("quietwire-memif.sock").exists());
    });
}
