// SPDX-License-Identifier: Apache-2.0
//! Capabilities of control threads: those that the ports of the switch require, and those that later changes require.
//!
//! While the switch runs, it requires capabilities to open, change and close ports, to enter network namespaces for them, and to create and
//! change the kernel taps of router interfaces. It requires none to import routes and neighbours of the kernel (rtnetlink(7)).

use quietwire_dpdk::PortKind;
use quietwire_host::privileges::Capabilities;

use crate::config::{Group, LaterPorts, Plan, PortPlan};
use crate::error::SwitchError;

/// Capability for ports with `netns`.
const NETNS: Capabilities = Capabilities::SYS_ADMIN;

/// Capability for programs of kernel forwarding (bpf(2)).
const KERNEL_FORWARDING: Capabilities = Capabilities::SYS_ADMIN;

/// Capability for the kernel taps of router interfaces.
const KERNEL_TAPS: Capabilities = Capabilities::NET_ADMIN;

/// Capabilities for packet sockets on interfaces that the port changes.
const PACKET_SOCKETS: Capabilities = Capabilities::NET_ADMIN.union(Capabilities::NET_RAW);

/// Returns the capabilities for opening, changing and closing ports of a kind, without `netns`.
const fn capabilities_of(kind: PortKind) -> Capabilities {
    match kind {
        PortKind::Memif
        | PortKind::Vhost
        | PortKind::VirtioUser
        | PortKind::Pcap
        | PortKind::Null => Capabilities::NONE,
        PortKind::Tap => Capabilities::NET_ADMIN,
        PortKind::Veth | PortKind::AfPacket => PACKET_SOCKETS,
        // The drivers of some cards share them with the kernel, and others require physical addresses.
        PortKind::AfXdp | PortKind::Pci => Capabilities::PORTS,
    }
}

/// Rights that a switch keeps after its start.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    later: LaterPorts,
    kept: Capabilities,
    /// Kinds of ports that the switch has from its start on, or may get.
    kinds: Vec<PortKind>,
}

impl Rights {
    /// Returns the rights of a switch that starts with a plan.
    pub(crate) fn of(plan: &Plan) -> Self {
        let has = |kind: PortKind| plan.ports.iter().any(|port| port.uri.kind() == kind);
        let is_needed = |kind: &PortKind| plan.later_ports.has(*kind) || has(*kind);
        let kinds: Vec<PortKind> = PortKind::ALL.into_iter().filter(is_needed).collect();
        let of_kinds = kinds.iter().map(|kind| capabilities_of(*kind));
        let netns = has_netns(plan) || allows_netns(&plan.later_ports);
        let taps = kernel_tap(plan).is_some();
        let forwards = kernel_forwarding(plan).is_some();
        let of_options = [
            (netns, NETNS),
            (taps, KERNEL_TAPS),
            (forwards, KERNEL_FORWARDING),
        ];
        let of_options = of_options.into_iter().filter(|(is_needed, _)| *is_needed);
        let kept = of_kinds
            .chain(of_options.map(|(_, capabilities)| capabilities))
            .fold(Capabilities::NONE, Capabilities::union);
        Self {
            later: plan.later_ports.clone(),
            kept,
            kinds,
        }
    }

    /// Returns the capabilities that control threads keep.
    pub(crate) const fn capabilities(&self) -> Capabilities {
        self.kept
    }

    /// Returns the kinds of ports that the switch has from its start on, or may get.
    pub(crate) fn kinds(&self) -> &[PortKind] {
        &self.kinds
    }

    /// Returns whether the kernel can forward for bridges without a setting.
    pub(crate) const fn has_kernel_forwarding(&self) -> bool {
        self.kept.contains(KERNEL_FORWARDING)
    }

    /// Refuses a change from one plan to another that the switch has no rights for.
    ///
    /// # Errors
    /// [`SwitchError::Config`] with the option to start the switch with.
    pub(crate) fn check(&self, now: &Plan, next: &Plan) -> Result<(), SwitchError> {
        let is_open = |port: &PortPlan| now.ports.iter().any(|one| one.is_same_device(port));
        for port in next.ports.iter().filter(|port| !is_open(port)) {
            let kind = port.uri.kind();
            let location = || format!("port '{}'", port.name);
            if !self.later.has(kind) {
                let what = format!("{} ports cannot be added to this switch", kind.name());
                return Err(refused(location(), &what, &self.later.with(kind)));
            }
            if port.uri.network_namespace().is_some() && !self.kept.contains(NETNS) {
                let what = format!(
                    "netns requires the capability {NETNS}, which the switch gave up at its start"
                );
                return Err(refused(location(), &what, &self.later.with_netns()));
            }
        }
        if let Some(interface) = kernel_tap(next)
            && !self.kept.contains(KERNEL_TAPS)
        {
            let location = format!("interface '{interface}'");
            let what = format!(
                "kernel requires the capability {KERNEL_TAPS}, which the switch gave up at its start"
            );
            return Err(refused(location, &what, &self.later.with(PortKind::Tap)));
        }
        if let Some(bridge) = kernel_forwarding(next)
            && !self.kept.contains(KERNEL_FORWARDING)
        {
            let location = format!("bridge '{bridge}'");
            let what = format!(
                "kernel-forwarding requires the capability {KERNEL_FORWARDING}, which the switch gave up at its start"
            );
            return Err(refused(location, &what, &self.later.with_netns()));
        }
        Ok(())
    }
}

fn allows_netns(later: &LaterPorts) -> bool {
    match later {
        LaterPorts::Any => true,
        LaterPorts::Only { netns, .. } => *netns,
    }
}

fn has_netns(plan: &Plan) -> bool {
    let mut uris = plan.ports.iter().map(|port| &port.uri);
    uris.any(|uri| uri.network_namespace().is_some())
}

/// Returns the name of an interface with a kernel tap.
fn kernel_tap(plan: &Plan) -> Option<&str> {
    let mut interfaces = plan.layer3.interfaces.iter();
    let found = interfaces.find(|one| one.kernel.is_some());
    found.map(|one| one.name.as_str())
}

/// Returns the name of a bridge whose settings require kernel forwarding.
fn kernel_forwarding(plan: &Plan) -> Option<&str> {
    plan.groups.iter().find_map(|group| match group {
        Group::Bridge(bridge) if bridge.kernel_forwarding == Some(true) => {
            Some(bridge.name.as_str())
        }
        _ => None,
    })
}

fn refused(location: String, what: &str, instead: &LaterPorts) -> SwitchError {
    SwitchError::Config {
        location,
        what: format!("{what} (start the switch with `--later-ports {instead}`)"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Settings;

    /// Returns the plan of a switch with these ports, and more text of its file.
    fn plan(uris: &[&str], later: &str, more: &str) -> Plan {
        let mut text = format!("later-ports = \"{later}\"\n");
        for (number, uri) in uris.iter().enumerate() {
            text += &format!("[[port]]\nname = \"p{number}\"\nuri = \"{uri}\"\n");
        }
        text += more;
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        settings.plan(&"0-3".parse().unwrap()).unwrap()
    }

    fn kept(uris: &[&str], later: &str, more: &str) -> String {
        Rights::of(&plan(uris, later, more))
            .capabilities()
            .to_string()
    }

    const KERNEL_TAP: &str = "[[interface]]\nname = \"i\"\nport = \"p0\"\naddresses = [\"192.0.2.1/24\"]\nkernel = \"k\"\n";
    const FORWARDING_BRIDGE: &str =
        "[[bridge]]\nname = \"lan\"\nports = [\"p0\"]\nkernel-forwarding = true\n";
    const MEMIF: &str = "memif:/m?role=server";

    /// The guide has a row for each capability: the kinds of ports that require it, and what else requires it.
    #[test]
    fn capabilities_of_ports_are_those_of_the_guide() {
        let page = include_str!("../../../docs/switch.md");
        for (capability, other) in [
            (Capabilities::NET_ADMIN, "interfaces with `kernel`"),
            (Capabilities::NET_RAW, ""),
            (Capabilities::IPC_LOCK, ""),
            (
                Capabilities::SYS_ADMIN,
                "`netns` of `tap` and `veth`, bridges with `kernel-forwarding = true`",
            ),
        ] {
            let requires = |kind: &PortKind| capabilities_of(*kind).contains(capability);
            let kinds = PortKind::ALL.into_iter().filter(requires);
            let names: Vec<String> = kinds.map(|kind| format!("`{}`", kind.name())).collect();
            let row = format!("| `{capability}` | {} | {other} |", names.join(", "));
            let row = row.replace("|  |", "| |");
            assert!(page.contains(&row), "no '{row}'");
        }
    }

    #[test]
    fn capabilities_are_those_of_present_and_later_ports() {
        let all = Capabilities::PORTS.to_string();
        for (uris, later, expected) in [
            (&[][..], "none", "none"),
            (&[MEMIF, "vhost:/v"][..], "memif,vhost", "none"),
            (&[MEMIF][..], "any", &*all),
            (&[MEMIF][..], "tap", "NET_ADMIN"),
            (&[MEMIF][..], "netns", "SYS_ADMIN"),
            (&["tap:t"][..], "none", "NET_ADMIN"),
            (&["tap:t?netns=n"][..], "none", "NET_ADMIN,SYS_ADMIN"),
            (&["tap:t"][..], "veth,netns", "NET_ADMIN,NET_RAW,SYS_ADMIN"),
            (&["af-packet:v"][..], "memif", "NET_ADMIN,NET_RAW"),
            (&["af-xdp:v"][..], "none", &*all),
            (&["pci:0000:17:00.0"][..], "none", &*all),
        ] {
            assert_eq!(kept(uris, later, ""), expected, "{uris:?} {later}");
        }
        assert_eq!(kept(&[MEMIF], "none", KERNEL_TAP), "NET_ADMIN");
        assert_eq!(kept(&[MEMIF], "none", FORWARDING_BRIDGE), "SYS_ADMIN");
        let forwards = |uris, later| Rights::of(&plan(uris, later, "")).has_kernel_forwarding();
        assert!(!forwards(&["veth:a", "veth:b"], "none"));
        assert!(forwards(&["veth:a?netns=n", "veth:b"], "none") && forwards(&[], "any"));
        let table = "[[vrf]]\nname = \"main\"\nkernel-table = 254\n";
        assert_eq!(kept(&[MEMIF], "none", table), "none");
    }

    #[test]
    fn filters_are_those_of_present_and_later_ports() {
        let rights = Rights::of(&plan(&["tap:t"], "memif", ""));
        assert_eq!(rights.kinds(), [PortKind::Memif, PortKind::Tap]);
        let rights = Rights::of(&plan(&[], "any", ""));
        assert_eq!(rights.kinds(), PortKind::ALL);
    }

    #[test]
    fn a_change_without_rights_is_refused_with_the_option_that_allows_it() {
        let check = |later: &str, next: (&[&str], &str)| {
            let now = plan(&[MEMIF], later, "");
            let next = plan(next.0, later, next.1);
            let checked = Rights::of(&now).check(&now, &next);
            checked.map_err(|error| error.to_string())
        };
        let allowed = [
            ("none", (&[MEMIF][..], "")),
            ("none", (&[][..], "")),
            ("any", (&[MEMIF, "tap:t?netns=n"][..], KERNEL_TAP)),
            ("vhost", (&[MEMIF, "vhost:/v"][..], "")),
            ("tap", (&[MEMIF, "tap:t"][..], KERNEL_TAP)),
            ("veth,netns", (&[MEMIF, "veth:t?netns=n"][..], "")),
            ("veth,netns", (&[MEMIF][..], FORWARDING_BRIDGE)),
        ];
        for (later, next) in allowed {
            assert_eq!(check(later, next), Ok(()));
        }
        let refused = [
            (
                "memif,vhost",
                (&[MEMIF, "tap:t"][..], ""),
                "port 'p1': tap ports cannot be added to this switch (start the switch with `--later-ports memif,vhost,tap`)",
            ),
            (
                "none",
                (&[MEMIF, "vhost:/v"][..], ""),
                "port 'p1': vhost ports cannot be added to this switch (start the switch with `--later-ports vhost`)",
            ),
            (
                "tap",
                (&[MEMIF, "tap:t?netns=n"][..], ""),
                "port 'p1': netns requires the capability SYS_ADMIN, which the switch gave up at its start (start the switch with `--later-ports tap,netns`)",
            ),
            (
                "memif",
                (&[MEMIF][..], KERNEL_TAP),
                "interface 'i': kernel requires the capability NET_ADMIN, which the switch gave up at its start (start the switch with `--later-ports memif,tap`)",
            ),
            (
                "memif",
                (&[MEMIF][..], FORWARDING_BRIDGE),
                "bridge 'lan': kernel-forwarding requires the capability SYS_ADMIN, which the switch gave up at its start (start the switch with `--later-ports memif,netns`)",
            ),
        ];
        for (later, next, expected) in refused {
            assert_eq!(check(later, next), Err(expected.to_owned()));
        }
    }
}
