// SPDX-License-Identifier: Apache-2.0
//! Generates clients and servers of kubelet's gRPC services from their descriptions here. The messages are in src/kubelet/messages.rs.
//!
//! Services: device plugins (`v1beta1`: kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins) and pod resources
//! (`v1`: the same page, 'Monitoring device plugin resources').

use tonic_build::manual::{Builder, Method, Service};

/// Path of a message.
fn message(name: &str) -> String {
    format!("crate::kubelet::messages::{name}")
}

/// Describes a call with one request and one response.
fn call(name: &str, route: &str, input: &str, output: &str) -> Method {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(message(input))
        .output_type(message(output))
        .codec_path("tonic_prost::ProstCodec")
        .build()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let registration = Service::builder()
        .name("Registration")
        .package("v1beta1")
        .method(call("register", "Register", "RegisterRequest", "Empty"))
        .build();
    let list_and_watch = Method::builder()
        .name("list_and_watch")
        .route_name("ListAndWatch")
        .input_type(message("Empty"))
        .output_type(message("ListAndWatchResponse"))
        .codec_path("tonic_prost::ProstCodec")
        .server_streaming()
        .build();
    let plugin = Service::builder()
        .name("DevicePlugin")
        .package("v1beta1")
        .method(call(
            "get_device_plugin_options",
            "GetDevicePluginOptions",
            "Empty",
            "DevicePluginOptions",
        ))
        .method(list_and_watch)
        .method(call(
            "get_preferred_allocation",
            "GetPreferredAllocation",
            "PreferredAllocationRequest",
            "PreferredAllocationResponse",
        ))
        .method(call(
            "allocate",
            "Allocate",
            "AllocateRequest",
            "AllocateResponse",
        ))
        .method(call(
            "pre_start_container",
            "PreStartContainer",
            "PreStartContainerRequest",
            "Empty",
        ))
        .build();
    let pod_resources = Service::builder()
        .name("PodResourcesLister")
        .package("v1")
        .method(call(
            "list",
            "List",
            "ListPodResourcesRequest",
            "ListPodResourcesResponse",
        ))
        .method(call(
            "get_allocatable_resources",
            "GetAllocatableResources",
            "AllocatableResourcesRequest",
            "AllocatableResourcesResponse",
        ))
        .build();
    Builder::new()
        .build_transport(false)
        .compile(&[registration, plugin, pod_resources]);
}
