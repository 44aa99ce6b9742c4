// SPDX-License-Identifier: Apache-2.0
//! The guest's own kernel as a network function: a router (Documentation/networking/ip-sysctl.rst) or a bridge.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use quietwire_base::supervised::{Command, Finished};
use quietwire_base::{Deadline, net_device, wait_until};

use super::function::{Function, Machine};
use super::ports::OF_KERNEL;
use super::protocol::{PortCounters, Routing, Vnf};

/// Octets of a frame that are not the IP packet: the Ethernet header and the FCS.
const AROUND_IP: u16 = 18;
/// Timeout until an interface carries frames.
const CARRIER_DEADLINE: Duration = Duration::from_secs(10);
/// Timeout for a command that sets an interface up. An emulated guest takes a second.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const BRIDGE: &str = "br0";

#[derive(Debug, Default)]
struct Linux {
    commands: Vec<String>,
    interfaces: Vec<String>,
    /// Counters of the interfaces at the start.
    before: Vec<PortCounters>,
    has_bridge: bool,
}

/// Configures the guest's kernel as a router.
pub(super) fn router(
    machine: &Machine,
    vnf: &Vnf,
    routing: &Routing,
) -> Result<Box<dyn Function>, String> {
    routing.check(machine.ports.len())?;
    let mut linux = Linux::take(machine, vnf)?;
    for (port, addresses) in &routing.addresses {
        let interface = linux.interfaces[*port].clone();
        linux.set(&format!("net/ipv4/conf/{interface}/rp_filter"), "0")?;
        for address in addresses {
            // No duplicate address detection: it would block the address for a second.
            linux.ip(&format!("address add {address} dev {interface} nodad"))?;
        }
    }
    for (port, address, mac) in &routing.neighbours {
        let interface = linux.interfaces[*port].clone();
        linux.ip(&format!(
            "neighbour replace {address} lladdr {mac} dev {interface} nud permanent"
        ))?;
    }
    for (prefix, gateway) in &routing.routes {
        linux.ip(&format!("route replace {prefix} via {gateway}"))?;
    }
    for (key, value) in [
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ] {
        linux.set(key, value)?;
    }
    linux.begin()
}

/// Configures the guest's kernel as a bridge.
pub(super) fn bridge(machine: &Machine, vnf: &Vnf) -> Result<Box<dyn Function>, String> {
    let mut linux = Linux::take(machine, vnf)?;
    linux.ip(&format!(
        "link add {BRIDGE} type bridge stp_state 0 forward_delay 0"
    ))?;
    linux.has_bridge = true;
    for interface in linux.interfaces.clone() {
        linux.ip(&format!("link set {interface} master {BRIDGE}"))?;
    }
    linux.ip(&format!("link set {BRIDGE} up"))?;
    linux.begin()
}

impl Routing {
    /// Checks that all ports exist that the router's setup names.
    pub(super) fn check(&self, ports: usize) -> Result<(), String> {
        let named = self
            .addresses
            .keys()
            .chain(self.neighbours.iter().map(|(port, ..)| port));
        for port in named {
            if *port >= ports {
                return Err(format!(
                    "port {port} has addresses, but the guest has only {ports} ports"
                ));
            }
        }
        let without = self
            .neighbours
            .iter()
            .find(|(port, ..)| !self.addresses.contains_key(port));
        without.map_or(Ok(()), |(port, address, _)| {
            Err(format!(
                "neighbour {address} is on port {port}, which has no address"
            ))
        })
    }
}

impl Linux {
    /// Binds all ports to the kernel's driver and sets them up.
    fn take(machine: &Machine, vnf: &Vnf) -> Result<Self, String> {
        let mut linux = Self::default();
        for port in &machine.ports {
            machine.bus.bind(&port.address, OF_KERNEL)?;
            let interface = machine.bus.interface(&port.address)?;
            let mtu = vnf.frame_size_max.saturating_sub(AROUND_IP);
            linux.interfaces.push(interface.clone());
            linux.ip(&format!("address flush dev {interface}"))?;
            linux.ip(&format!("link set {interface} mtu {mtu} up"))?;
        }
        Ok(linux)
    }

    /// Waits until all interfaces carry frames, and takes the counters' base values.
    fn begin(mut self) -> Result<Box<dyn Function>, String> {
        for interface in &self.interfaces {
            let carrier = statistic(interface, "../carrier");
            if !wait_until(CARRIER_DEADLINE, || carrier() == Ok(1)) {
                return Err(format!(
                    "the guest's interface {interface} has no carrier (start the peer of this port)"
                ));
            }
        }
        self.before = self.now()?;
        Ok(Box::new(self))
    }

    fn ip(&mut self, words: &str) -> Result<(), String> {
        let line = format!("ip {words}");
        let finished = Command::new("ip")
            .args(words.split(' '))
            .run(Deadline::after(COMMAND_TIMEOUT))
            .map_err(|error| error.to_string());
        finished
            .and_then(Finished::into_result)
            .map_err(|reason| format!("`{line}`: {reason}"))?;
        self.commands.push(line);
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let path = PathBuf::from("/proc/sys").join(key);
        fs::write(&path, value)
            .map_err(|error| format!("writing {value} to {}: {error}", path.display()))?;
        self.commands
            .push(format!("sysctl -w {}={value}", key.replace('/', ".")));
        Ok(())
    }

    fn now(&self) -> Result<Vec<PortCounters>, String> {
        let of = |interface: &String| {
            let read = |name: &str| statistic(interface, name)();
            Ok(PortCounters {
                rx_frames: read("rx_packets")?,
                tx_frames: read("tx_packets")?,
                rx_dropped: read("rx_dropped")? + read("rx_missed_errors")?,
                tx_dropped: read("tx_dropped")?,
            })
        };
        self.interfaces.iter().map(of).collect()
    }
}

/// Reads a counter of an interface (Documentation/ABI/testing/sysfs-class-net-statistics).
fn statistic(interface: &str, name: &str) -> impl Fn() -> Result<u64, String> {
    let path = net_device::path(interface, "statistics").join(name);
    move || {
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        text.trim()
            .parse()
            .map_err(|_| format!("{} holds '{}'", path.display(), text.trim()))
    }
}

fn since(before: PortCounters, now: PortCounters) -> PortCounters {
    PortCounters {
        rx_frames: now.rx_frames.saturating_sub(before.rx_frames),
        tx_frames: now.tx_frames.saturating_sub(before.tx_frames),
        rx_dropped: now.rx_dropped.saturating_sub(before.rx_dropped),
        tx_dropped: now.tx_dropped.saturating_sub(before.tx_dropped),
    }
}

impl Function for Linux {
    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn counters(&mut self) -> Result<Vec<PortCounters>, String> {
        let now = self.now()?;
        Ok(self
            .before
            .iter()
            .zip(now)
            .map(|(before, now)| since(*before, now))
            .collect())
    }

    fn log(&self) -> String {
        self.commands.join("\n")
    }

    fn stop(&mut self) -> Result<(), String> {
        if self.has_bridge {
            self.ip(&format!("link del {BRIDGE}"))?;
            self.has_bridge = false;
        }
        for interface in self.interfaces.clone() {
            self.ip(&format!("address flush dev {interface}"))?;
            self.ip(&format!("neighbour flush dev {interface} nud permanent"))?;
            self.ip(&format!("link set {interface} down"))?;
        }
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            self.set(key, "0")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_names_ports_that_are_there() {
        let mut routing = Routing {
            addresses: [(0, Vec::new()), (1, Vec::new())].into(),
            ..Routing::default()
        };
        routing.check(2).unwrap();
        assert!(routing.check(1).unwrap_err().contains("port 1"));
        routing.neighbours = vec![(
            2,
            "10.0.0.1".parse().unwrap(),
            "02:00:00:00:00:01".parse().unwrap(),
        )];
        assert!(routing.check(2).unwrap_err().contains("port 2"));
        assert!(routing.check(3).unwrap_err().contains("no address"));
    }

    #[test]
    fn counters_begin_where_the_function_did() {
        let before = PortCounters {
            rx_frames: 5,
            tx_frames: 6,
            rx_dropped: 0,
            tx_dropped: 9,
        };
        let now = PortCounters {
            rx_frames: 8,
            tx_frames: 6,
            rx_dropped: 1,
            tx_dropped: 9,
        };
        let expected = PortCounters {
            rx_frames: 3,
            tx_frames: 0,
            rx_dropped: 1,
            tx_dropped: 0,
        };
        assert_eq!(since(before, now), expected);
        assert!(
            statistic("no-such-interface", "rx_packets")()
                .unwrap_err()
                .contains("no-such-interface")
        );
        assert_eq!(statistic("lo", "tx_dropped")(), Ok(0));
    }
}
