// SPDX-License-Identifier: Apache-2.0
//! Reports of a switch as text tables.

use quietwire_report::TerminalTable;
use quietwire_switch::control::Subject;
use quietwire_switch::report::{
    FdbReport, FlappingReport, InterfaceReport, KernelFilterReport, LoadBalancerReport, MoveReport,
    NatReport, NeighbourReport, PortCounts, PortReport, QueueReport, RoutesReport, SteerReport,
    ThreadReport, VlanReport, VrfReport,
};
use serde_json::{Error, Value, from_value};

use super::packet::condition_text;
use super::table::table;

pub(super) fn render(subject: Subject, answer: Value) -> Result<String, Error> {
    Ok(match subject {
        Subject::Ports => ports(&from_value::<Vec<PortReport>>(answer)?),
        Subject::Fdb => fdb(from_value::<Vec<FdbReport>>(answer)?).to_string(),
        Subject::Threads => threads(&from_value::<Vec<ThreadReport>>(answer)?).to_string(),
        Subject::Stats => super::stats::render(&from_value(answer)?),
        Subject::Queues => queues(&from_value::<Vec<QueueReport>>(answer)?).to_string(),
        Subject::Cycles => super::cycles::render(&from_value(answer)?),
        Subject::Moves => moves(&from_value::<Vec<MoveReport>>(answer)?).to_string(),
        Subject::Vlans => vlans(from_value::<Vec<VlanReport>>(answer)?).to_string(),
        Subject::Flapping => flapping(from_value::<Vec<FlappingReport>>(answer)?).to_string(),
        Subject::Vrfs => vrfs(from_value::<Vec<VrfReport>>(answer)?).to_string(),
        Subject::Interfaces => interfaces(from_value::<Vec<InterfaceReport>>(answer)?).to_string(),
        Subject::Neighbours => neighbours(from_value::<Vec<NeighbourReport>>(answer)?).to_string(),
        Subject::KernelFilters => {
            kernel_filters(from_value::<Vec<KernelFilterReport>>(answer)?).to_string()
        }
        Subject::Steer => super::steered::render(&from_value::<Vec<SteerReport>>(answer)?),
        Subject::LoadBalancers => {
            super::load_balancer::render(&from_value::<Vec<LoadBalancerReport>>(answer)?)
        }
        Subject::Replication => super::replication::render(&from_value(answer)?),
        Subject::Nat => super::nat::render(&from_value::<Vec<NatReport>>(answer)?),
        Subject::Rules => super::rules::render(from_value(answer)?),
        Subject::Config => from_value(answer)?,
    })
}

/// Formats two lines per port, and the URIs in a second table, because one line with eleven-digit counters is too wide for a
/// terminal.
fn ports(ports: &[PortReport]) -> String {
    let header = ["port", "link", "group", "", "frames", "octets", "drops"];
    let mut counts = table(header, 4);
    let mut places = table(["port", "queues", "rings", "uri"], 4);
    let mut details = String::new();
    for port in ports {
        let PortCounts {
            name,
            rx_frames,
            rx_octets,
            tx_frames,
            tx_octets,
            drops,
            ..
        } = &port.counts;
        let link = port.state.as_str();
        let (frames, octets) = (rx_frames.to_string(), rx_octets.to_string());
        let drops = drops.sum().to_string();
        counts.add_row([name, link, &port.group, "rx", &frames, &octets, &drops]);
        let (frames, octets) = (tx_frames.to_string(), tx_octets.to_string());
        counts.add_row(["", "", "", "tx", &frames, &octets, ""]);
        let queues = format!("{}/{}", port.rx_queues, port.tx_queues);
        let rings = format!(
            "{}/{}",
            or_dash(port.rx_ring_size),
            or_dash(port.tx_ring_size)
        );
        places.add_row([name, &queues, &rings, &port.uri]);
        details += &port_details(port);
    }
    format!("{counts}\n\n{places}{details}")
}

/// Formats details that only some ports have: a reason to wait, the mode of AF_XDP, kernel forwarding, a speed, flow control, rules that a
/// card has kept, a guest, the NUMA nodes of its memory, losses that the driver counts.
fn port_details(port: &PortReport) -> String {
    let mut text = String::new();
    let name = &port.counts.name;
    if let Some(reason) = &port.waiting_reason {
        text += &format!("\n{name}: {} ({reason})", port.state);
    }
    if let Some(mode) = &port.xdp_mode {
        text += &format!("\n{name}: AF_XDP in {mode} mode");
    }
    if let Some(state) = &port.kernel_forwarding {
        let frames = port.counts.kernel_forwarded;
        text += &format!("\n{name}: kernel forwarding is {state} ({frames} rx frames)");
    }
    if let Some(speed_mbps) = port.speed_mbps {
        text += &format!("\n{name}: {speed_mbps} Mbit/s");
    }
    if let Some(mode) = &port.flow_control {
        text += &format!("\n{name}: flow control {mode}");
    }
    if port.link_changes > 0 {
        text += &format!("\n{name}: the link has changed {} times", port.link_changes);
    }
    if !port.kept_card_rules.is_empty() {
        let rules = port.kept_card_rules.join(", ");
        text += &format!("\n{name}: its card still drops frames of former rules: {rules}");
    }
    if let Some(guest) = &port.guest {
        text += &format!(
            "\n{name}: a guest with {} rings of {} descriptors; {}",
            guest.rings,
            guest.ring_size,
            guest.features.join(", ")
        );
    }
    if !port.memory.is_empty() {
        let nodes = port.memory.iter();
        let nodes = nodes.map(|one| format!("{} KiB on NUMA node {}", one.kib, one.node));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        text += &format!("\n{name}: its memory is about {nodes}");
    }
    let lost = [
        "drop",
        "err",
        "miss",
        "discard",
        "nombuf",
        "alloc",
        "malformed",
        "too_long",
        "refused",
        "no_buffers",
    ];
    for (counter, count) in &port.driver {
        if lost.iter().any(|word| counter.contains(word)) {
            text += &format!("\n{name}: the driver counts {count} {counter}");
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

fn fdb(mut entries: Vec<FdbReport>) -> TerminalTable {
    entries.sort_by(|a, b| (&a.bridge, a.vlan, a.mac).cmp(&(&b.bridge, b.vlan, b.mac)));
    let mut table = table(["bridge", "vlan", "mac", "port", "age s"], 4);
    for entry in entries {
        let age = if entry.is_static {
            "static".to_owned()
        } else {
            entry.age_s.to_string()
        };
        table.add_row([
            entry.bridge,
            or_dash(entry.vlan),
            entry.mac.to_string(),
            entry.port,
            age,
        ]);
    }
    table
}

/// Formats a value that may be absent.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn vlans(vlans: Vec<VlanReport>) -> TerminalTable {
    let mut table = table(["bridge", "vlan", "tagged", "untagged", "addresses"], 4);
    for vlan in vlans {
        table.add_row([
            vlan.bridge,
            vlan.vlan.to_string(),
            vlan.tagged.join(","),
            vlan.untagged.join(","),
            vlan.entries.to_string(),
        ]);
    }
    table
}

fn flapping(addresses: Vec<FlappingReport>) -> TerminalTable {
    let mut table = table(["bridge", "vlan", "mac", "moves", "in s"], 3);
    for one in addresses {
        table.add_row([
            one.bridge,
            or_dash(one.vlan),
            one.mac.to_string(),
            one.moves.to_string(),
            one.since_s.to_string(),
        ]);
    }
    table
}

fn threads(threads: &[ThreadReport]) -> TerminalTable {
    let mut table = table(
        [
            "tid",
            "name",
            "role",
            "cpus",
            "state",
            "uid",
            "capabilities",
            "seccomp",
            "denied",
        ],
        4,
    );
    let none = || "-".to_owned();
    for thread in threads {
        let rights = thread.rights.as_ref();
        table.add_row([
            thread.tid.to_string(),
            thread.name.clone(),
            thread.role.name().to_owned(),
            thread.cpus.to_string(),
            match (thread.late_s, thread.is_asleep) {
                (Some(late_s), _) => format!("no reply for {late_s:.0} s"),
                (None, Some(true)) => "asleep".to_owned(),
                (None, Some(false)) => "awake".to_owned(),
                (None, None) => "-".to_owned(),
            },
            rights.map_or_else(none, |rights| rights.uid.to_string()),
            rights.map_or_else(none, |rights| rights.capabilities.clone()),
            rights.map_or_else(none, |rights| {
                let is_filtered = rights.has_seccomp_filter;
                if is_filtered { "filter" } else { "off" }.to_owned()
            }),
            match &thread.last_denied_call {
                Some(last) => format!("{} (last: {last})", thread.denied_calls),
                None => thread.denied_calls.to_string(),
            },
        ]);
    }
    table
}

fn vrfs(vrfs: Vec<VrfReport>) -> TerminalTable {
    let mut table = table(["vrf", "interfaces", "ipv4 routes", "ipv6 routes"], 2);
    for vrf in vrfs {
        table.add_row([
            vrf.name,
            vrf.interfaces.join(","),
            vrf.ipv4_routes.to_string(),
            vrf.ipv6_routes.to_string(),
        ]);
    }
    table
}

fn interfaces(interfaces: Vec<InterfaceReport>) -> TerminalTable {
    let header = ["interface", "vrf", "on", "vlan", "mac", "mtu", "addresses"];
    let mut table = table(header, 7);
    for one in interfaces {
        let on = match (one.port, one.bridge) {
            (Some(port), _) => format!("port {port}"),
            (None, bridge) => format!("bridge {}", bridge.unwrap_or_default()),
        };
        let addresses: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
        table.add_row([
            one.name,
            one.vrf,
            on,
            or_dash(one.vlan),
            one.mac.to_string(),
            one.mtu.to_string(),
            addresses.join(" "),
        ]);
    }
    table
}

fn neighbours(neighbours: Vec<NeighbourReport>) -> TerminalTable {
    let mut table = table(
        ["interface", "address", "mac", "state", "source", "age s"],
        5,
    );
    for one in neighbours {
        table.add_row([
            one.interface,
            one.address.to_string(),
            or_dash(one.mac),
            one.state.name().to_owned(),
            one.source.name().to_owned(),
            format!("{:.1}", one.age_s),
        ]);
    }
    table
}

/// Formats the rules, with their match as in the command that adds them.
fn kernel_filters(rules: Vec<KernelFilterReport>) -> TerminalTable {
    let mut table = table(["name", "packets", "frames"], 2);
    for rule in rules {
        let location = [("interface", rule.interface), ("vrf", rule.vrf)];
        let location = location
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let conditions = condition_text(location.chain(rule.packet.words()));
        table.add_row([rule.name, conditions, rule.frames.to_string()]);
    }
    table
}

/// Formats routes. A star marks active routes.
pub(super) fn routes(report: &RoutesReport) -> String {
    let mut table = table(["", "prefix", "source", "metric", "via"], 5);
    for route in &report.routes {
        let ways: Vec<String> = route
            .via
            .iter()
            .map(|via| {
                let address = via
                    .address
                    .map(|address| format!("{address} "))
                    .unwrap_or_default();
                let weight = if via.weight == 1 {
                    String::new()
                } else {
                    format!(" weight {}", via.weight)
                };
                format!("{address}on {}{weight}", via.interface)
            })
            .collect();
        let way = if ways.is_empty() {
            route.kind.clone()
        } else {
            ways.join(", ")
        };
        table.add_row([
            if route.is_active { "*" } else { "" }.to_owned(),
            route.prefix.to_string(),
            route.source.name().to_owned(),
            route.metric.to_string(),
            way,
        ]);
    }
    let shown = report.routes.len() as u64;
    let more = if shown < report.total {
        format!(
            "\n\n{shown} of {} routes (--limit N shows more)",
            report.total
        )
    } else {
        String::new()
    };
    format!("{table}{more}")
}

fn queues(queues: &[QueueReport]) -> TerminalTable {
    let mut table = table(
        [
            "port",
            "queue",
            "cpu",
            "mapped",
            "load %",
            "entries",
            "frames",
            "bursts",
            "frames/burst",
            "cycles/frame",
        ],
        4,
    );
    let ratio = |a: u64, b: u64| {
        if b == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}", a as f64 / b as f64)
        }
    };
    for queue in queues {
        table.add_row([
            queue.port.clone(),
            queue.queue.to_string(),
            or_dash(queue.cpu),
            if queue.is_mapped { "by hand" } else { "" }.to_owned(),
            or_dash(queue.load.map(|load| format!("{:.1}", 100.0 * load))),
            or_dash(queue.entries),
            queue.frames.to_string(),
            queue.bursts.to_string(),
            ratio(queue.frames, queue.bursts),
            ratio(queue.cycles, queue.frames),
        ]);
    }
    table
}

/// Formats the moves of queues that would balance the load, as commands with their reasons. Begins with an empty line, if there are any.
pub(super) fn suggestions(moves: &[MoveReport]) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let command = |one: &MoveReport| {
        let MoveReport {
            port,
            queue,
            to,
            entries,
            to_queue,
            reason,
            ..
        } = one;
        let options = match entries.zip(*to_queue) {
            Some((entries, to_queue)) => format!("--to-queue {to_queue} --entries {entries}"),
            None => format!("--cpu {to}"),
        };
        format!("\n  quietwire switch set queue {port} {queue} {options}    # {reason}")
    };
    let commands: String = moves.iter().map(command).collect();
    format!(
        "\n\nto balance the load, run `quietwire switch rebalance`, set [rebalance] in the configuration, or run:{commands}"
    )
}

pub(super) fn moves(moves: &[MoveReport]) -> TerminalTable {
    let mut table = table(
        [
            "at s", "port", "queue", "entries", "to queue", "from cpu", "to cpu", "reason",
        ],
        8,
    );
    for one in moves {
        table.add_row([
            format!("{:.1}", one.uptime_s),
            one.port.clone(),
            one.queue.to_string(),
            or_dash(one.entries),
            or_dash(one.to_queue),
            one.from.to_string(),
            one.to.to_string(),
            one.reason.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_a_card_keeps_are_shown_with_its_port() {
        let mut port = PortReport::default();
        port.counts.name = "wan".to_owned();
        assert_eq!(port_details(&port), "");
        port.kept_card_rules = vec!["dns".to_owned(), "web".to_owned()];
        let expected = "\n\nwan: its card still drops frames of former rules: dns, web";
        assert_eq!(port_details(&port), expected);
    }

    #[test]
    fn the_flow_control_of_a_card_is_shown_with_its_port() {
        let mut port = PortReport::default();
        port.counts.name = "wan".to_owned();
        port.speed_mbps = Some(1000);
        port.flow_control = Some("rx".to_owned());
        let expected = "\n\nwan: 1000 Mbit/s\nwan: flow control rx";
        assert_eq!(port_details(&port), expected);
    }

    #[test]
    fn moves_that_balance_the_load_are_suggested_as_commands() {
        assert_eq!(suggestions(&[]), "");
        let whole = MoveReport {
            uptime_s: 3.0,
            port: "wan".to_owned(),
            queue: 2,
            from: 1,
            to: 4,
            entries: None,
            to_queue: None,
            reason: "queue load 40 %".to_owned(),
        };
        let part = MoveReport {
            entries: Some(28),
            to_queue: Some(3),
            ..whole.clone()
        };
        let text = suggestions(&[part]);
        let command =
            "\n  quietwire switch set queue wan 2 --to-queue 3 --entries 28    # queue load 40 %";
        assert!(text.ends_with(command), "{text}");
        let text = suggestions(&[whole]);
        assert!(text.starts_with("\n\nto balance the load"), "{text}");
        let command = "\n  quietwire switch set queue wan 2 --cpu 4    # queue load 40 %";
        assert!(text.ends_with(command), "{text}");
    }
}
