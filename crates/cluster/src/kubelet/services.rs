// SPDX-License-Identifier: Apache-2.0
//! Generated clients and servers of kubelet's gRPC services (see build.rs).

/// Service of kubelet with which device plugins register.
pub mod registration {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.Registration.rs"));
}

/// Service of a device plugin.
pub mod device_plugin {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.DevicePlugin.rs"));
}

/// Service of kubelet that lists the resources of pods.
pub mod pod_resources {
    include!(concat!(env!("OUT_DIR"), "/v1.PodResourcesLister.rs"));
}
