// SPDX-License-Identifier: Apache-2.0
//! What a switch says of itself, as tables for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use quietwire_packet::VlanId;
use quietwire_switch::control::Subject;
use quietwire_switch::report::{
    Drops, FdbReport, FlappingReport, MoveReport, PortCounts, PortReport, QueueReport, Role,
    StatsReport, ThreadReport, VlanReport,
};
use serde_json::{Error, Value, from_value};

pub(super) fn render(subject: Subject, answer: Value) -> Result<String, Error> {
    Ok(match subject {
        Subject::Ports => ports(&from_value::<Vec<PortReport>>(answer)?),
        Subject::Fdb => fdb(from_value::<Vec<FdbReport>>(answer)?).to_string(),
        Subject::Threads => threads(&from_value::<Vec<ThreadReport>>(answer)?).to_string(),
        Subject::Stats => stats(&from_value::<StatsReport>(answer)?),
        Subject::Queues => queues(&from_value::<Vec<QueueReport>>(answer)?).to_string(),
        Subject::Moves => moves(&from_value::<Vec<MoveReport>>(answer)?).to_string(),
        Subject::Vlans => vlans(from_value::<Vec<VlanReport>>(answer)?).to_string(),
        Subject::Flapping => flapping(from_value::<Vec<FlappingReport>>(answer)?).to_string(),
        Subject::Config => from_value(answer)?,
    })
}

/// A table whose columns from `numbers` on are numbers.
fn table<const N: usize>(header: [&str; N], numbers: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Two lines a port and the URIs apart, since eleven-digit counts of everything in one line are too wide for a terminal.
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
        } = &port.counts;
        let link = port.state.as_str();
        let (frames, octets) = (rx_frames.to_string(), rx_octets.to_string());
        let drops = drops.sum().to_string();
        counts.add_row([name, link, &port.group, "rx", &frames, &octets, &drops]);
        let (frames, octets) = (tx_frames.to_string(), tx_octets.to_string());
        counts.add_row(["", "", "", "tx", &frames, &octets, ""]);
        let queues = format!("{}/{}", port.rx_queues, port.tx_queues);
        let ring = |size: Option<u16>| size.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let rings = format!("{}/{}", ring(port.rx_ring_size), ring(port.tx_ring_size));
        places.add_row([name, &queues, &rings, &port.uri]);
        details += &port_details(port);
    }
    format!("{counts}\n\n{places}{details}")
}

/// What not every port has: a speed, a guest, losses that its driver counts.
fn port_details(port: &PortReport) -> String {
    let mut text = String::new();
    let name = &port.counts.name;
    if let Some(speed_mbps) = port.speed_mbps {
        text += &format!("\n{name}: {speed_mbps} Mbit/s");
    }
    if let Some(guest) = &port.guest {
        text += &format!(
            "\n{name}: a guest with {} rings of {} descriptors; {}",
            guest.rings,
            guest.ring_size,
            guest.features.join(", ")
        );
    }
    let lost = ["drop", "err", "miss", "discard", "nombuf", "alloc"];
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

fn fdb(mut entries: Vec<FdbReport>) -> Table {
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
            vlan_or_none(entry.vlan),
            entry.mac.to_string(),
            entry.port,
            age,
        ]);
    }
    table
}

fn vlan_or_none(vlan: Option<VlanId>) -> String {
    vlan.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string())
}

fn vlans(vlans: Vec<VlanReport>) -> Table {
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

fn flapping(addresses: Vec<FlappingReport>) -> Table {
    let mut table = table(["bridge", "vlan", "mac", "moves", "in s"], 3);
    for one in addresses {
        table.add_row([
            one.bridge,
            vlan_or_none(one.vlan),
            one.mac.to_string(),
            one.moves.to_string(),
            one.since_s.to_string(),
        ]);
    }
    table
}

fn threads(threads: &[ThreadReport]) -> Table {
    let mut table = table(["tid", "name", "role", "cpus"], 4);
    for thread in threads {
        table.add_row([
            thread.tid.to_string(),
            thread.name.clone(),
            match thread.role {
                Role::Forwarding => "forwarding",
                Role::Service => "service",
                Role::Control => "control",
            }
            .to_owned(),
            thread.cpus.to_string(),
        ]);
    }
    table
}

fn stats(stats: &StatsReport) -> String {
    let mut text = format!("up for {:.1} s\n\n", stats.uptime_s);
    let mut counters = table(["thread", "counter", "count"], 2);
    for thread in &stats.threads {
        let name = format!("qw-fwd-{}", thread.cpu);
        for (counter, count) in [
            ("polls", thread.polls),
            ("empty polls", thread.empty_polls),
            ("bursts", thread.bursts),
            ("yields", thread.yields),
            ("rx frames", thread.rx_frames),
            ("tx frames", thread.tx_frames),
        ] {
            counters.add_row([&name, counter, &count.to_string()]);
        }
    }
    text += &counters.to_string();
    text += "\n\n";
    text += &port_counters(&stats.ports).to_string();
    if !stats.bridges.is_empty() {
        let mut bridges = table(["bridge", "counter", "count"], 2);
        for bridge in &stats.bridges {
            for (counter, count) in [
                ("addresses known", u64::from(bridge.entries)),
                ("room for", u64::from(bridge.max_entries)),
                ("frames flooded", bridge.flooded),
                ("addresses learned", bridge.learned),
                ("addresses moved", bridge.moved),
                ("moves of flapping addresses", bridge.flapped),
                ("addresses not learned", bridge.not_learned),
                ("addresses static elsewhere", bridge.static_elsewhere),
                ("addresses aged", bridge.aged),
            ] {
                bridges.add_row([bridge.name.as_str(), counter, &count.to_string()]);
            }
        }
        text += "\n\n";
        text += &bridges.to_string();
    }
    text
}

/// Traffic of each port, and each reason for drops that there was.
fn port_counters(ports: &[PortCounts]) -> Table {
    let mut table = table(["port", "counter", "count"], 2);
    for port in ports {
        let Drops {
            short,
            filtered,
            reserved_address,
            frame_type,
            not_member,
            no_member,
            split_horizon,
            not_flooded,
            storm_unknown_unicast,
            storm_broadcast,
            storm_multicast,
            over_limit,
            no_output,
            tx_full,
            no_buffers,
            rx_missed,
            rx_errors,
        } = port.drops;
        for (counter, count) in [
            ("rx frames", port.rx_frames),
            ("rx octets", port.rx_octets),
            ("tx frames", port.tx_frames),
            ("tx octets", port.tx_octets),
        ] {
            table.add_row([port.name.as_str(), counter, &count.to_string()]);
        }
        for (reason, count) in [
            ("dropped: shorter than an Ethernet header", short),
            ("dropped: for the port it came from", filtered),
            ("dropped: reserved address", reserved_address),
            ("dropped: kind of frame not admitted", frame_type),
            ("dropped: of a VLAN that the port is not in", not_member),
            ("dropped: for a port outside the VLAN", no_member),
            ("dropped: split horizon", split_horizon),
            ("dropped: flooded nowhere", not_flooded),
            ("dropped: unknown-unicast storm", storm_unknown_unicast),
            ("dropped: broadcast storm", storm_broadcast),
            ("dropped: multicast storm", storm_multicast),
            ("dropped: over the learning limit", over_limit),
            ("dropped: no such output", no_output),
            ("dropped: transmit queue full", tx_full),
            ("dropped: no buffers", no_buffers),
            ("dropped: receive queue full", rx_missed),
            ("dropped: damaged, says the driver", rx_errors),
        ] {
            if count > 0 {
                table.add_row([port.name.as_str(), reason, &count.to_string()]);
            }
        }
    }
    table
}

fn queues(queues: &[QueueReport]) -> Table {
    let mut table = table(
        [
            "port",
            "queue",
            "cpu",
            "mapped",
            "load %",
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
            queue
                .cpu
                .map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
            if queue.is_mapped { "by hand" } else { "" }.to_owned(),
            queue
                .load
                .map_or_else(|| "-".to_owned(), |load| format!("{:.1}", 100.0 * load)),
            queue.frames.to_string(),
            queue.bursts.to_string(),
            ratio(queue.frames, queue.bursts),
            ratio(queue.cycles, queue.frames),
        ]);
    }
    table
}

pub(super) fn moves(moves: &[MoveReport]) -> Table {
    let mut table = table(["at s", "port", "queue", "from cpu", "to cpu", "why"], 6);
    for one in moves {
        table.add_row([
            format!("{:.1}", one.uptime_s),
            one.port.clone(),
            one.queue.to_string(),
            one.from.to_string(),
            one.to.to_string(),
            one.why.clone(),
        ]);
    }
    table
}
