// SPDX-License-Identifier: Apache-2.0
//! Messages of kubelet's gRPC services, with the field numbers of its interface: device plugins (package `v1beta1`) and pod resources
//! (package `v1`).

use std::collections::BTreeMap;

use prost::Message;

/// Message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// Optional calls of a device plugin.
#[derive(Clone, PartialEq, Message)]
pub struct DevicePluginOptions {
    /// Whether `PreStartContainer` has to be called.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// Whether `GetPreferredAllocation` is available.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// Registration of a device plugin.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterRequest {
    /// Version of the interface: `v1beta1`.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of the plugin's socket in the directory of device plugins.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// Name of the resource: `DOMAIN/NAME`.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// Optional calls.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// All devices of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ListAndWatchResponse {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// One device.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Its ID, unique in the resource.
    #[prost(string, tag = "1")]
    pub id: String,
    /// `Healthy` or `Unhealthy`.
    #[prost(string, tag = "2")]
    pub health: String,
    /// NUMA nodes of the device.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// NUMA nodes.
#[derive(Clone, PartialEq, Message)]
pub struct TopologyInfo {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Message)]
pub struct NumaNode {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Request for the preferred devices of containers.
#[derive(Clone, PartialEq, Message)]
pub struct PreferredAllocationRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// Request for the preferred devices of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerPreferredAllocationRequest {
    /// Devices from which to choose.
    #[prost(string, repeated, tag = "1")]
    pub available_device_ids: Vec<String>,
    /// Devices that the answer has to include.
    #[prost(string, repeated, tag = "2")]
    pub must_include_device_ids: Vec<String>,
    /// Number of devices.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// Preferred devices of containers.
#[derive(Clone, PartialEq, Message)]
pub struct PreferredAllocationResponse {
    /// One for each container of the request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerPreferredAllocationResponse>,
}

/// Preferred devices of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerPreferredAllocationResponse {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// Allocation of devices to containers of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct AllocateRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// Devices of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAllocateRequest {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// Allocations of the containers.
#[derive(Clone, PartialEq, Message)]
pub struct AllocateResponse {
    /// One for each container of the request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// Allocation of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAllocateResponse {
    /// Environment variables.
    #[prost(btree_map = "string, string", tag = "1")]
    pub envs: BTreeMap<String, String>,
    /// Mounts.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
    /// Device nodes.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceSpec>,
    /// Annotations of the container.
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    /// Devices of the Container Device Interface.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A mount.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether the container may only read.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A device node.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceSpec {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Letters of `r`, `w` and `m` (mknod).
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// A device of the Container Device Interface.
#[derive(Clone, PartialEq, Message)]
pub struct CdiDevice {
    /// Its fully qualified name: `VENDOR/CLASS=NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Devices of a container that is about to start.
#[derive(Clone, PartialEq, Message)]
pub struct PreStartContainerRequest {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// Request for the resources of all pods.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodResourcesRequest {}

/// Resources of all pods.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodResourcesResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// Resources of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodResources {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// Resources of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerResources {
    /// Name of the container.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its devices.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Its exclusive CPUs.
    #[prost(int64, repeated, tag = "3")]
    pub cpu_ids: Vec<i64>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerDevices {
    /// Name of the resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// The devices.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
    /// NUMA nodes of the devices.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// Request for the resources that kubelet may assign.
#[derive(Clone, PartialEq, Message)]
pub struct AllocatableResourcesRequest {}

/// Resources that kubelet may assign.
#[derive(Clone, PartialEq, Message)]
pub struct AllocatableResourcesResponse {
    /// Devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<ContainerDevices>,
    /// CPUs.
    #[prost(int64, repeated, tag = "2")]
    pub cpu_ids: Vec<i64>,
}
