// SPDX-License-Identifier: Apache-2.0
//! quietwire's own switch as a network function: a cross-connect, a bridge, a router, or any configuration.

use std::fs;
use std::path::{Path, PathBuf};

use quietwire_base::Idle;
use quietwire_dpdk::HugePages;
use quietwire_host::CpuList;
use quietwire_switch::control::{Request, Subject};
use quietwire_switch::report::{CyclesReport, PortDrop, PortReport};
use serde::Serialize;

use super::function::{Cpus, Function, Machine, Process};
use super::ports::Port;
use super::protocol::{PortCounters, Routing, Vnf, VnfKind};
use crate::control::ask;
use crate::router_tables::RouterTables;
use crate::switch_command::SwitchCommand;

/// Path of the running program.
const PROGRAM: &str = "/proc/self/exe";
/// Memory for frames, MiB.
const MEMORY_MIB: u32 = 128;

#[derive(Debug)]
struct Switch {
    process: Process,
    control: PathBuf,
    ports: usize,
}

pub(super) fn start(
    machine: &Machine,
    vnf: &Vnf,
    cpus: &Cpus,
    directory: &Path,
) -> Result<Box<dyn Function>, String> {
    let [config, control, log] =
        ["switch.toml", "switch.sock", "switch.log"].map(|name| directory.join(name));
    let text = configuration(&machine.ports, vnf)?;
    fs::write(&config, text).map_err(|error| format!("writing {}: {error}", config.display()))?;
    let program = fs::read_link(PROGRAM).map_err(|error| format!("{PROGRAM}: {error}"))?;
    let words = command(program, config, control.clone(), vnf, cpus).words();
    let process =
        Process::spawn(&words, &log)?.wait_until_up(|| reported_ports(&control).map(|_| ()))?;
    Ok(Box::new(Switch {
        process,
        control,
        ports: machine.ports.len(),
    }))
}

fn command(
    program: PathBuf,
    config: PathBuf,
    control: PathBuf,
    vnf: &Vnf,
    cpus: &Cpus,
) -> SwitchCommand {
    let others = CpuList::from_iter([cpus.control]);
    let others = cpus.are_apart.then_some(others);
    SwitchCommand {
        program,
        control_socket: control,
        config: Some(config),
        forwarding_cpus: cpus.forwarding.clone(),
        service_cpus: others.clone(),
        control_cpus: others,
        // Without other CPUs, its other threads run on the forwarding CPUs as well.
        is_pinned: (!cpus.are_apart).then_some(false),
        idle: match (vnf.shares_cpus, cpus.are_apart) {
            (true, _) => Some(Idle::Sleep),
            (false, false) => Some(Idle::Yield),
            (false, true) => None,
        },
        huge_pages: Some(HugePages::Require),
        memory_mib: Some(MEMORY_MIB),
        frame_size_max: Some(vnf.frame_size_max),
        ..SwitchCommand::default()
    }
}

/// `[[port]]` of a configuration file.
#[derive(Serialize)]
struct PortTable {
    name: String,
    uri: String,
}

/// `[[cross-connect]]`.
#[derive(Serialize)]
struct CrossConnectTable<'a> {
    ports: &'a [String],
}

/// `[[bridge]]`.
#[derive(Serialize)]
struct BridgeTable<'a> {
    name: &'a str,
    ports: &'a [String],
}

fn configuration(ports: &[Port], vnf: &Vnf) -> Result<String, String> {
    let mut config = toml::Table::new();
    if let VnfKind::Switch(text) | VnfKind::Firewall(text) = &vnf.kind {
        config = text
            .parse()
            .map_err(|error| format!("the switch's configuration: {error}"))?;
    }
    let names: Vec<String> = (0..ports.len()).map(|index| format!("p{index}")).collect();
    let port = |(name, port): (&String, &Port)| PortTable {
        name: name.clone(),
        uri: format!("pci:{}?queues={}", port.address, vnf.queues),
    };
    let tables: Vec<PortTable> = names.iter().zip(ports).map(port).collect();
    add(&mut config, "port", &tables)?;
    match &vnf.kind {
        VnfKind::CrossConnect | VnfKind::Firewall(_) => {
            let pairs = names.chunks(2).map(|ports| CrossConnectTable { ports });
            let pairs: Vec<CrossConnectTable<'_>> = pairs.collect();
            add(&mut config, "cross-connect", &pairs)?;
        }
        VnfKind::Bridge => {
            let bridge = BridgeTable {
                name: "br0",
                ports: &names,
            };
            add(&mut config, "bridge", &[bridge])?;
        }
        VnfKind::Router(routing) => add_routing(&mut config, ports, routing)?,
        _ => {}
    }
    toml::to_string(&config).map_err(|error| error.to_string())
}

fn add_routing(config: &mut toml::Table, ports: &[Port], routing: &Routing) -> Result<(), String> {
    routing.check(ports.len())?;
    let tables = RouterTables::of(routing, |port| ports.get(port).and_then(|port| port.mac));
    add(config, "interface", &tables.interface)?;
    add(config, "route", &tables.route)?;
    add(config, "neighbour", &tables.neighbour)
}

/// Inserts tables before the existing ones of this name.
fn add(config: &mut toml::Table, name: &str, tables: &[impl Serialize]) -> Result<(), String> {
    if tables.is_empty() {
        return Ok(());
    }
    let tables = toml::Value::try_from(tables).map_err(|error| error.to_string())?;
    let (toml::Value::Array(mut all), there) = (tables, config.remove(name)) else {
        return Err(format!("'{name}' could not be written"));
    };
    match there {
        None => {}
        Some(toml::Value::Array(there)) => all.extend(there),
        Some(_) => {
            return Err(format!(
                "the switch's configuration: '{name}' must be a list of tables (write [[{name}]])"
            ));
        }
    }
    config.insert(name.to_owned(), toml::Value::Array(all));
    Ok(())
}

fn reported_ports(control: &Path) -> Result<Vec<PortReport>, String> {
    ask(control, &Request::Show(Subject::Ports)).map_err(|error| format!("the switch: {error}"))
}

/// Returns the counters of the ports `p0`, `p1` and so on.
fn counters(ports: &[PortReport], count: usize) -> Result<Vec<PortCounters>, String> {
    let of = |index: usize| {
        let name = format!("p{index}");
        let port = ports.iter().find(|port| port.counts.name == name);
        let counts = &port
            .ok_or_else(|| format!("the switch lists no port {name}"))?
            .counts;
        let drops = &counts.drops;
        let to_send = [
            PortDrop::TxFull,
            PortDrop::DeniedOut,
            PortDrop::NotSegmented,
        ];
        let tx_dropped: u64 = to_send.iter().map(|reason| drops[*reason]).sum();
        Ok(PortCounters {
            rx_frames: counts.rx_frames,
            tx_frames: counts.tx_frames,
            // The sum has all of these.
            rx_dropped: drops.sum().saturating_sub(tx_dropped),
            tx_dropped,
        })
    };
    (0..count).map(of).collect()
}

impl Function for Switch {
    fn commands(&self) -> Vec<String> {
        vec![self.process.command().to_owned()]
    }

    fn counters(&mut self) -> Result<Vec<PortCounters>, String> {
        self.process.check()?;
        counters(&reported_ports(&self.control)?, self.ports)
    }

    fn cycles(&mut self) -> Result<CyclesReport, String> {
        self.process.check()?;
        ask(&self.control, &Request::Show(Subject::Cycles))
            .map_err(|error| format!("the switch: {error}"))
    }

    fn log(&self) -> String {
        self.process.last_words()
    }

    fn stop(&mut self) -> Result<(), String> {
        self.process.stop()
    }

    fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::{PortCounts, PortDrops};

    use super::*;

    fn ports() -> Vec<Port> {
        let port = |address: &str, mac: &str| Port {
            address: address.to_owned(),
            mac: mac.parse().ok(),
        };
        vec![
            port("0000:00:10.0", "02:00:00:00:00:01"),
            port("0000:00:11.0", ""),
        ]
    }

    fn vnf(kind: VnfKind) -> Vnf {
        Vnf {
            kind,
            forwarding_cpus: None,
            shares_cpus: false,
            queues: 1,
            frame_size_max: 1518,
        }
    }

    fn written(kind: VnfKind) -> toml::Table {
        configuration(&ports(), &vnf(kind))
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn each_kind_has_its_tables() {
        let config = written(VnfKind::CrossConnect);
        assert_eq!(
            config["port"][1]["uri"].as_str(),
            Some("pci:0000:00:11.0?queues=1")
        );
        assert_eq!(
            config["cross-connect"][0]["ports"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(
            written(VnfKind::Bridge)["bridge"][0]["ports"][1].as_str(),
            Some("p1")
        );
        let rules = "rule-default = \"drop\"\n[[rule]]\nname = \"x\"\naction = \"accept\"\n";
        let config = written(VnfKind::Firewall(rules.to_owned()));
        assert_eq!(config["rule-default"].as_str(), Some("drop"));
        assert_eq!(config["rule"].as_array().unwrap().len(), 1);
        assert_eq!(config["cross-connect"].as_array().unwrap().len(), 1);
        let routing = Routing {
            addresses: [
                (0, vec!["10.0.0.1/24".parse().unwrap()]),
                (1, vec!["10.1.0.1/24".parse().unwrap()]),
            ]
            .into(),
            routes: vec![("10.9.0.0/16".parse().unwrap(), "10.1.0.9".parse().unwrap())],
            neighbours: vec![(
                1,
                "10.1.0.9".parse().unwrap(),
                "02:00:00:00:00:09".parse().unwrap(),
            )],
        };
        let config = written(VnfKind::Router(routing.clone()));
        assert_eq!(
            config["interface"][0]["mac"].as_str(),
            Some("02:00:00:00:00:01")
        );
        assert!(config["interface"][1].get("mac").is_none());
        assert_eq!(
            config["route"][0]["via"][0]["address"].as_str(),
            Some("10.1.0.9")
        );
        assert_eq!(config["neighbour"][0]["interface"].as_str(), Some("i1"));
        let mut wrong = routing;
        wrong.addresses.insert(2, Vec::new());
        let error = configuration(&ports(), &vnf(VnfKind::Router(wrong))).unwrap_err();
        assert!(error.contains("port 2"), "{error}");
    }

    #[test]
    fn a_custom_configuration_is_extended_by_the_ports() {
        let text = "idle = \"yield\"\n[[port]]\nname = \"t\"\nuri = \"tap:t0\"\n[[bridge]]\nname = \"lan\"\nports = [\"p0\", \"t\"]\n";
        let config = written(VnfKind::Switch(text.to_owned()));
        let names: Vec<&str> = config["port"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["p0", "p1", "t"]);
        assert_eq!(config["idle"].as_str(), Some("yield"));
        for wrong in ["port = 1", "a b"] {
            configuration(&ports(), &vnf(VnfKind::Switch(wrong.to_owned()))).unwrap_err();
        }
    }

    #[test]
    fn threads_have_cpus_of_their_own_where_there_are_several() {
        let options = |all: &str, shares_cpus: bool| {
            let cpus = Cpus::of(&all.parse().unwrap(), None).unwrap();
            let vnf = Vnf {
                shares_cpus,
                ..vnf(VnfKind::CrossConnect)
            };
            let [program, config, control] = ["/q", "/c", "/s"].map(PathBuf::from);
            command(program, config, control, &vnf, &cpus)
                .words()
                .join(" ")
        };
        let apart = options("0-2", false);
        for part in [
            "--forwarding-cpus 1-2",
            "--service-cpus 0",
            "--control-cpus 0",
        ] {
            assert!(apart.contains(part), "{apart}");
        }
        assert!(
            !apart.contains("--pinning") && !apart.contains("--idle"),
            "{apart}"
        );
        assert!(options("0-2", true).contains("--idle sleep"));
        let one = options("0", false);
        for part in ["--forwarding-cpus 0", "--pinning none", "--idle yield"] {
            assert!(one.contains(part), "{one}");
        }
        assert!(!one.contains("--service-cpus"), "{one}");
    }

    #[test]
    fn ports_are_counted_in_their_order() {
        let port = |name: &str, rx_frames, tx_frames, drops| PortReport {
            counts: PortCounts {
                name: name.to_owned(),
                rx_frames,
                tx_frames,
                drops,
                ..PortCounts::default()
            },
            ..PortReport::default()
        };
        let drops = PortDrops::of(|reason| match reason {
            PortDrop::TxFull => 2,
            PortDrop::Short => 1,
            PortDrop::RxMissed => 3,
            _ => 0,
        });
        let printed = [
            port("p1", 5, 6, drops),
            port("p0", 7, 8, PortDrops::default()),
        ];
        let counted = counters(&printed, 2).unwrap();
        assert_eq!(
            (
                counted[0].rx_frames,
                counted[1].tx_dropped,
                counted[1].rx_dropped
            ),
            (7, 2, 4)
        );
        let error = counters(&printed, 3).unwrap_err();
        assert!(error.contains("no port p2"), "{error}");
    }
}
