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

#[derive(Debug)]
struct Linux {
    /// The program ip(8).
    program: PathBuf,
    commands: Vec<String>,
    interfaces: Vec<String>,
    /// Counters of the interfaces at the start.
    before: Vec<PortCounters>,
    has_bridge: bool,
    /// The kernel forwards between its interfaces.
    is_router: bool,
}

/// Configures the guest's kernel as a router.
pub(super) fn router(
    machine: &Machine,
    vnf: &Vnf,
    routing: &Routing,
) -> Result<Box<dyn Function>, String> {
    routing.check(machine.ports.len())?;
    let mut linux = Linux::take(machine, vnf)?;
    let configured = linux.route(routing);
    linux.begin(configured)
}

/// Configures the guest's kernel as a bridge.
pub(super) fn bridge(machine: &Machine, vnf: &Vnf) -> Result<Box<dyn Function>, String> {
    let mut linux = Linux::take(machine, vnf)?;
    let configured = linux.bridge();
    linux.begin(configured)
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
    fn new(program: PathBuf) -> Self {
        Self {
            program,
            commands: Vec::new(),
            interfaces: Vec::new(),
            before: Vec::new(),
            has_bridge: false,
            is_router: false,
        }
    }

    /// Binds all ports to the kernel's driver and sets them up.
    fn take(machine: &Machine, vnf: &Vnf) -> Result<Self, String> {
        let mut linux = Self::new("ip".into());
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

    /// Returns the interface of a port.
    fn interface(&self, port: usize) -> Result<String, String> {
        let interface = self.interfaces.get(port).cloned();
        interface.ok_or_else(|| format!("there is no port p{port}"))
    }

    fn route(&mut self, routing: &Routing) -> Result<(), String> {
        for (port, addresses) in &routing.addresses {
            let interface = self.interface(*port)?;
            self.set(&format!("net/ipv4/conf/{interface}/rp_filter"), "0")?;
            for address in addresses {
                // No duplicate address detection: it would block the address for a second.
                self.ip(&format!("address add {address} dev {interface} nodad"))?;
            }
        }
        for (port, address, mac) in &routing.neighbours {
            let interface = self.interface(*port)?;
            self.ip(&format!(
                "neighbour replace {address} lladdr {mac} dev {interface} nud permanent"
            ))?;
        }
        for (prefix, gateway) in &routing.routes {
            self.ip(&format!("route replace {prefix} via {gateway}"))?;
        }
        self.is_router = true;
        for (key, value) in [
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
        ] {
            self.set(key, value)?;
        }
        Ok(())
    }

    fn bridge(&mut self) -> Result<(), String> {
        self.ip(&format!(
            "link add {BRIDGE} type bridge stp_state 0 forward_delay 0"
        ))?;
        self.has_bridge = true;
        for interface in self.interfaces.clone() {
            self.ip(&format!("link set {interface} master {BRIDGE}"))?;
        }
        self.ip(&format!("link set {BRIDGE} up"))
    }

    /// Returns the function once its interfaces carry frames. After a failure, nothing of it stays: the next function has the same names.
    fn begin(mut self, configured: Result<(), String>) -> Result<Box<dyn Function>, String> {
        match configured.and_then(|()| self.wait()) {
            Ok(()) => Ok(Box::new(self)),
            Err(reason) => Err(match self.stop() {
                Ok(()) => reason,
                Err(left) => format!("{reason}; its configuration is not removed: {left}"),
            }),
        }
    }

    /// Waits until all interfaces carry frames, and takes the counters' base values.
    fn wait(&mut self) -> Result<(), String> {
        for interface in &self.interfaces {
            let carrier = statistic(interface, "../carrier");
            if !wait_until(CARRIER_DEADLINE, || carrier() == Ok(1)) {
                return Err(format!(
                    "the guest's interface {interface} has no carrier (start the peer of this port)"
                ));
            }
        }
        self.before = self.now()?;
        Ok(())
    }

    fn ip(&mut self, words: &str) -> Result<(), String> {
        let line = format!("ip {words}");
        let finished = Command::new(&self.program)
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
                rx_dropped: read("rx_dropped")?.saturating_add(read("rx_missed_errors")?),
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

    /// Makes all steps, also after one that failed. Returns the first failure.
    fn stop(&mut self) -> Result<(), String> {
        let mut outcomes = Vec::new();
        if self.has_bridge {
            let removed = self.ip(&format!("link del {BRIDGE}"));
            self.has_bridge = removed.is_err();
            outcomes.push(removed);
        }
        for interface in self.interfaces.clone() {
            for words in [
                format!("address flush dev {interface}"),
                format!("neighbour flush dev {interface} nud permanent"),
                format!("link set {interface} down"),
            ] {
                outcomes.push(self.ip(&words));
            }
        }
        if self.is_router {
            for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
                outcomes.push(self.set(key, "0"));
            }
        }
        outcomes.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
    fn a_bridge_that_could_not_be_configured_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (program, log) = (directory.path().join("ip"), directory.path().join("log"));
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\n[ \"$*\" != 'link set eth2 master br0' ]\n",
            log.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut linux = Linux::new(program);
        linux.interfaces = vec!["eth1".to_owned(), "eth2".to_owned()];
        let configured = linux.bridge();
        let reason = linux.begin(configured).unwrap_err();
        assert!(reason.contains("eth2 master br0"), "{reason}");
        let log = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        for line in ["link del br0", "link set eth1 down", "link set eth2 down"] {
            assert!(lines.contains(&line), "{log}");
        }
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
