// SPDX-License-Identifier: Apache-2.0
//! State of a network: whether the VRF of its pods exists.

use quietwire_switch::config::layer3::VRF_MAIN;

use crate::resources::{DataPlane, DataPlaneSpec, Interface, Network, NetworkStatus};

/// Returns the problem of the pods of a network, as far as data planes show one.
fn problem(network: &Network, planes: &[DataPlane]) -> Option<String> {
    let spec = &network.spec;
    let (vrf, bridge) = (spec.vrf.as_deref()?, spec.bridge.as_deref()?);
    let has_vrf = |plane: &DataPlaneSpec| plane.vrfs.iter().any(|one| one.name == vrf);
    if vrf != VRF_MAIN && !planes.iter().any(|plane| has_vrf(&plane.spec)) {
        return Some(format!(
            "VRF '{vrf}' is in no DataPlane (add it to vrfs of a DataPlane)"
        ));
    }
    let is_on = |one: &Interface| {
        one.vrf.as_deref().unwrap_or(VRF_MAIN) == vrf
            && one.bridge.as_deref() == Some(bridge)
            && one.vlan == spec.vlan
    };
    let mut interfaces = planes.iter().flat_map(|plane| &plane.spec.interfaces);
    if interfaces.any(is_on) {
        return None;
    }
    let vlan = spec.vlan.map(|vlan| format!(" in VLAN {vlan}"));
    Some(format!(
        "no DataPlane has an interface of VRF '{vrf}' on bridge '{bridge}'{} (add it to interfaces)",
        vlan.unwrap_or_default()
    ))
}

/// Returns the state of a network, if it is another one than that in the API server. A network that never had a VRF has none.
pub(super) fn changed(network: &Network, planes: &[DataPlane]) -> Option<NetworkStatus> {
    if network.spec.vrf.is_none() && network.status.is_none() {
        return None;
    }
    let status = NetworkStatus {
        observed_generation: network.metadata.generation.unwrap_or_default(),
        problem: problem(network, planes),
    };
    (network.status.as_ref() != Some(&status)).then_some(status)
}
