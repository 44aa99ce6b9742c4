// SPDX-License-Identifier: Apache-2.0
//! Network namespaces of elements, and pairs of interfaces between them.

use std::path::Path;

use quietwire_host::journal::Change;

use super::wiring::Wiring;
use crate::element::ElementContext;
use crate::error::LabError;
use crate::spawn::require;
use crate::topology::{Encapsulation, Graph, LinkKind};

/// Directory of named network namespaces (ip-netns(8)).
pub(super) const NAMESPACES: &str = "/run/netns";

pub(super) fn make_namespaces(
    graph: &Graph,
    wiring: &Wiring,
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    for name in wiring.namespaces.iter().flatten() {
        require("ip", "iproute2")?;
        context.record(&Change::NamespaceCreated {
            path: Path::new(NAMESPACES).join(name),
        })?;
        context.run(&["ip", "netns", "add", name])?;
        // Frames that the kernel sends (IPv6) are not the tester's, and would distort the counters.
        let setting = if graph.encapsulation == Encapsulation::Ipv6 {
            "for each in all default; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; \
             echo 1 >/proc/sys/net/ipv6/conf/$each/addr_gen_mode; \
             echo 0 >/proc/sys/net/ipv6/conf/$each/router_solicitations; done"
        } else {
            "for each in all default; do echo 1 >/proc/sys/net/ipv6/conf/$each/disable_ipv6; done"
        };
        context.run(&["ip", "netns", "exec", name, "sh", "-c", setting])?;
        context.run(&["ip", "-n", name, "link", "set", "lo", "up"])?;
    }
    Ok(())
}

pub(super) fn make_links(
    graph: &Graph,
    wiring: &Wiring,
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    make_taps(graph, wiring, context)?;
    for link in graph
        .links
        .iter()
        .filter(|link| link.kind == LinkKind::Veth)
    {
        let ends = link.ends.map(|end| {
            let namespace = wiring.namespace(end.element).unwrap_or_default();
            (namespace, format!("p{}", end.port))
        });
        let [(here, name), (there, peer)] = &ends;
        context.run(&[
            "ip", "-n", here, "link", "add", name, "type", "veth", "peer", "name", peer, "netns",
            there,
        ])?;
        for (namespace, name) in &ends {
            context.run(&[
                "ip", "-n", namespace, "link", "set", name, "up", "promisc", "on",
            ])?;
        }
    }
    Ok(())
}

/// Creates the tap interfaces of kernel switches whose other side is QEMU, which finds them by name. They are removed with their
/// namespace.
fn make_taps(
    graph: &Graph,
    wiring: &Wiring,
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    let taps = graph.links.iter().filter(|link| link.kind == LinkKind::Tap);
    for end in taps.flat_map(|link| link.ends) {
        if !graph.element(end.element).is_kernels() {
            continue;
        }
        let namespace = wiring.namespace(end.element).unwrap_or_default();
        let (ip, name) = (["ip", "-n", &namespace], format!("p{}", end.port));
        context.run(&[&ip[..], &["tuntap", "add", "dev", &name, "mode", "tap"]].concat())?;
        let up = ["link", "set", &name, "up", "promisc", "on"];
        context.run(&[&ip[..], &up].concat())?;
    }
    Ok(())
}
