// SPDX-License-Identifier: Apache-2.0
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::messages::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use super::services::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use super::*;
use crate::runtime;

const CONFIGURATION: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}
reservedSystemCPUs: \"0,4-5\"
topologyManagerPolicy: single-numa-node
evictionHard: {memory.available: 100Mi}
";

const STATE: &str = r#"{"policyName":"static","defaultCpuSet":"0,3-5","entries":{"7f1c":{"app":"1-2"}},"checksum":1353318690}"#;

const MEMORY: &str = r#"{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{
    "hugepages-1Gi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},
    "hugepages-2Mi":{"total":67108864,"systemReserved":0,"allocatable":67108864,"reserved":0,"free":67108864},
    "memory":{"total":8589934592,"systemReserved":104857600,"allocatable":8485076992,"reserved":0,"free":8485076992}},
    "cells":[0]}},"checksum":1}"#;

#[test]
fn the_state_of_the_memory_manager_is_read() {
    let state = MemoryManagerState::parse(MEMORY).unwrap();
    assert_eq!(state.policy, STATIC_MEMORY);
    let pools = [((0, 2048), 65_536), ((0, 1_048_576), 0)];
    assert_eq!(state.huge_pages, pools.into());
    let memory = NodeMemory {
        total: 8_589_934_592,
        allocatable: 8_485_076_992,
        free: 8_485_076_992,
    };
    assert_eq!(state.memory.get(&(0, "memory".to_owned())), Some(&memory));
    assert_eq!(state.memory.len(), 3);
    let none = r#"{"policyName":"None","machineState":null,"checksum":1}"#;
    assert!(
        MemoryManagerState::parse(none)
            .unwrap()
            .huge_pages
            .is_empty()
    );
    for text in [
        "{}",
        r#"{"policyName":"Static","machineState":{"x":{}}}"#,
        r#"{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{"total":-1}}}}}"#,
    ] {
        assert!(MemoryManagerState::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_configuration_is_read() {
    let configuration = Configuration::parse(CONFIGURATION).unwrap();
    assert!(configuration.is_static() && configuration.is_strict());
    assert_eq!(configuration.reserved.to_string(), "0,4-5");
    assert_eq!(configuration.topology_manager_policy, "single-numa-node");
    assert_eq!(configuration.topology_manager_scope, "container");
    assert_eq!(configuration.memory_manager_policy, "None");
    let plain = Configuration::parse("{\"kind\": \"KubeletConfiguration\"}").unwrap();
    assert_eq!(plain.cpu_manager_policy, "none");
    assert!(plain.reserved.is_empty() && !plain.is_strict());
    for (text, problem) in [
        ("kind: Pod", "kind is 'Pod'"),
        (
            "kind: KubeletConfiguration\nreservedSystemCPUs: 3-1",
            "reservedSystemCPUs: ",
        ),
        ("- a", ""),
    ] {
        let error = Configuration::parse(text).unwrap_err();
        assert!(error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn the_state_of_the_cpu_manager_is_read() {
    let state = CpuManagerState::parse(STATE).unwrap();
    assert_eq!(state.policy, "static");
    assert_eq!(state.shared.to_string(), "0,3-5");
    let entry = state.exclusive.get(&("7f1c".to_owned(), "app".to_owned()));
    assert_eq!(entry.map(ToString::to_string), Some("1-2".to_owned()));
    let none = CpuManagerState::parse(r#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#);
    assert!(none.unwrap().shared.is_empty());
    assert!(CpuManagerState::parse("{}").is_err());
    assert!(CpuManagerState::parse(r#"{"policyName":"static","defaultCpuSet":"x"}"#).is_err());
}

#[test]
fn a_container_that_both_report_is_listed_once_with_its_pod() {
    let state = CpuManagerState::parse(STATE).unwrap();
    let pod = |container: &str, cpus: &str| PodCpus {
        namespace: "default".to_owned(),
        pod: "fast".to_owned(),
        container: container.to_owned(),
        cpus: cpus.parse().unwrap(),
        devices: Vec::new(),
    };
    let named = claims(Some(&state), &[pod("app", "1-2"), pod("side", "")]);
    let owners: Vec<&str> = named.iter().map(|claim| claim.owner.as_str()).collect();
    assert_eq!(owners, ["container 'app' of pod 'default/fast'"]);
    let unnamed = claims(Some(&state), &[pod("other", "7")]);
    let owners: Vec<&str> = unnamed.iter().map(|claim| claim.owner.as_str()).collect();
    assert_eq!(
        owners,
        [
            "container 'other' of pod 'default/fast'",
            "container 'app' of the pod with UID 7f1c"
        ]
    );
}

#[test]
fn files_that_are_missing_or_malformed_are_named() {
    let root = tempfile::tempdir().unwrap();
    let places = KubeletPaths {
        configuration: root.path().join("config.yaml"),
        cpu_state: root.path().join("cpu_manager_state"),
        memory_state: root.path().join("memory_manager_state"),
        ..KubeletPaths::default()
    };
    let error = Kubelet::read(&places, &[]).unwrap_err().to_string();
    assert!(error.contains("config.yaml: cannot be read"), "{error}");
    std::fs::write(&places.configuration, CONFIGURATION).unwrap();
    let kubelet = Kubelet::read(&places, &[]).unwrap();
    assert_eq!(kubelet.cpu_state, None);
    std::fs::write(&places.cpu_state, STATE).unwrap();
    let kubelet = Kubelet::read(&places, &[]).unwrap();
    assert_eq!(kubelet.claims.len(), 1);
    std::fs::write(&places.cpu_state, "{").unwrap();
    let error = Kubelet::read(&places, &[]).unwrap_err().to_string();
    assert!(error.contains("cpu_manager_state: "), "{error}");
    std::fs::write(&places.cpu_state, STATE).unwrap();
    std::fs::write(&places.memory_state, MEMORY).unwrap();
    let kubelet = Kubelet::read(&places, &[]).unwrap();
    assert_eq!(kubelet.memory_state.unwrap().policy, STATIC_MEMORY);
}

/// A kubelet with one pod.
struct OnePod;

#[tonic::async_trait]
impl PodResourcesLister for OnePod {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let container = ContainerResources {
            name: "app".to_owned(),
            devices: vec![ContainerDevices {
                resource_name: "quietwire.io/memif".to_owned(),
                device_ids: vec!["memif-0".to_owned(), "memif-1".to_owned()],
                topology: None,
            }],
            cpu_ids: vec![2, 3, -1],
        };
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: vec![PodResources {
                name: "fast".to_owned(),
                namespace: "default".to_owned(),
                containers: vec![container],
            }],
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

#[test]
fn cpus_and_devices_of_pods_come_from_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kubelet.sock");
    let timeout = Duration::from_secs(10);
    let absent = |socket: &Path| {
        let socket = socket.to_owned();
        async move { pod_cpus(&socket, timeout).await }
    };
    let places = KubeletPaths {
        configuration: directory.path().join("config.yaml"),
        cpu_state: directory.path().join("absent"),
        memory_state: directory.path().join("absent"),
        pod_resources: socket.clone(),
        ..KubeletPaths::default()
    };
    std::fs::write(&places.configuration, CONFIGURATION).unwrap();
    runtime().unwrap().block_on(async {
        let unknown = Kubelet::observe(&places).await.unwrap();
        assert_eq!(unknown.devices, None);
        let error = absent(&socket).await.unwrap_err().to_string();
        assert!(error.contains("kubelet.sock: no reply"), "{error}");
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = Server::builder()
            .add_service(PodResourcesListerServer::new(OnePod))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let serving = tokio::spawn(serving);
        let pods = pod_cpus(&socket, timeout).await.unwrap();
        let kubelet = Kubelet::observe(&places).await.unwrap();
        serving.abort();
        assert_eq!(kubelet.devices.map(|all| all.len()), Some(2));
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0].cpus.to_string(), "2-3");
        let devices: Vec<&str> = pods[0].devices.iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(devices, ["memif-0", "memif-1"]);
    });
}
