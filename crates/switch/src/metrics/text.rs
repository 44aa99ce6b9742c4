// SPDX-License-Identifier: Apache-2.0
//! Reports in Prometheus' text format. Names follow its conventions: base units, `_total` for counters.

use std::fmt::Write;

use crate::report::{
    BackendReport, BridgeCounts, LoadBalancerReport, NatReport, PortReport, QueueReport, Role,
    RouterCounts, StatsReport, SteerReport, SteeredBy, StepCounts, ThreadCounts,
};

/// Content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

struct Text(String);

/// Adds a metric with its help text and a value per label set.
impl Text {
    fn metric<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, String)>, f64)>,
    ) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP quietwire_switch_{name} {help}");
        let _ = writeln!(self.0, "# TYPE quietwire_switch_{name} {kind}");
        for (labels, value) in samples {
            let _ = write!(self.0, "quietwire_switch_{name}");
            let mut separator = '{';
            for (label, value) in &labels {
                let _ = write!(self.0, "{separator}{label}=\"{}\"", escaped(value));
                separator = ',';
            }
            let end = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(self.0, "{end} {value}");
        }
    }

    fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, String)>, u64)>,
    ) {
        let samples = samples
            .into_iter()
            .map(|(labels, value)| (labels, value as f64));
        self.metric(name, "counter", help, samples);
    }
}

/// Escapes a label value: backslash, quote and line feed.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Reports of the engine that metrics are made of.
pub(crate) struct EngineReports<'a> {
    pub(crate) stats: &'a StatsReport,
    pub(crate) ports: &'a [PortReport],
    pub(crate) queues: &'a [QueueReport],
    pub(crate) steered: &'a [SteerReport],
    pub(crate) nats: &'a [NatReport],
    pub(crate) balancers: &'a [LoadBalancerReport],
}

/// Renders all metrics.
pub(crate) fn exposition(reports: &EngineReports<'_>, denied_calls: &[(Role, u64)]) -> String {
    let EngineReports {
        stats,
        ports,
        queues,
        steered,
        nats,
        balancers,
    } = *reports;
    let mut text = Text(String::new());
    text.metric(
        "uptime_seconds",
        "gauge",
        "Time since the switch started.",
        [(vec![], stats.uptime_s)],
    );
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    text.metric(
        "info",
        "gauge",
        "The version of the switch.",
        [(version, 1.0)],
    );
    of_ports(&mut text, ports);
    of_threads(&mut text, &stats.threads);
    let denied_calls = denied_calls
        .iter()
        .map(|(role, calls)| (vec![("role", role.name().to_owned())], *calls));
    text.counter(
        "denied_calls_total",
        "System calls that seccomp filters denied, by role of the thread.",
        denied_calls,
    );
    of_queues(&mut text, queues);
    of_steering(&mut text, steered);
    of_bridges(&mut text, &stats.bridges);
    of_router(&mut text, &stats.router);
    of_nats(&mut text, nats);
    of_balancers(&mut text, balancers);
    text.0
}

fn of_ports(text: &mut Text, ports: &[PortReport]) {
    let each = |of: fn(&PortReport) -> u64| {
        let labelled =
            move |port: &PortReport| (vec![("port", port.counts.name.clone())], of(port));
        ports.iter().map(labelled).collect::<Vec<_>>()
    };
    let up = each(|port| u64::from(port.link_up));
    let up = up.into_iter().map(|(labels, value)| (labels, value as f64));
    text.metric("port_up", "gauge", "1 while the port's link is up.", up);
    for (name, help, of) in [
        (
            "port_receive_frames_total",
            "Frames received.",
            (|port| port.counts.rx_frames) as fn(&PortReport) -> u64,
        ),
        (
            "port_receive_bytes_total",
            "Octets received, without FCS.",
            |port| port.counts.rx_octets,
        ),
        (
            "port_link_changes_total",
            "Changes of the link of a network card, read once a second.",
            |port| port.link_changes,
        ),
        ("port_transmit_frames_total", "Frames sent.", |port| {
            port.counts.tx_frames
        }),
        (
            "port_transmit_bytes_total",
            "Octets sent, without FCS.",
            |port| port.counts.tx_octets,
        ),
        (
            "port_transmit_tso_frames_total",
            "Frames sent with unsegmented TCP data.",
            |port| port.counts.tx_tso_frames,
        ),
        (
            "port_segmented_frames_total",
            "Frames with TCP data that were cut into segments before they were sent.",
            |port| port.counts.segmented,
        ),
        (
            "port_merged_frames_total",
            "TCP segments and UDP datagrams that were merged into larger frames before they were sent.",
            |port| port.counts.merged,
        ),
    ] {
        text.counter(name, help, each(of));
    }
    let drops = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.counts.drops.iter().map(move |(reason, count)| {
            let labels = vec![("port", name.clone()), ("reason", reason.name().to_owned())];
            (labels, count)
        })
    });
    let drops: Vec<_> = drops.collect();
    text.counter("port_drops_total", "Frames dropped, by reason.", drops);
    let effects = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.counts.effects.iter().map(move |(effect, count)| {
            let labels = vec![("port", name.clone()), ("effect", effect.name().to_owned())];
            (labels, count)
        })
    });
    let effects: Vec<_> = effects.collect();
    text.counter(
        "port_rule_effects_total",
        "Frames received, by effect of the filter rules.",
        effects,
    );
    let statistics = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.driver.iter().map(move |(statistic, value)| {
            let labels = vec![("port", name.clone()), ("name", statistic.clone())];
            (labels, *value as f64)
        })
    });
    let statistics: Vec<_> = statistics.collect();
    // Most are counters, but not all of them.
    text.metric(
        "port_driver_statistic",
        "gauge",
        "Statistics of the port's driver that are not 0, by the driver's names.",
        statistics,
    );
}

fn of_threads(text: &mut Text, threads: &[ThreadCounts]) {
    let each = |of: fn(&ThreadCounts) -> u64| {
        let labelled =
            move |thread: &ThreadCounts| (vec![("cpu", thread.cpu.to_string())], of(thread));
        threads.iter().map(labelled).collect::<Vec<_>>()
    };
    for (name, help, of) in [
        (
            "thread_polls_total",
            "Polls of receive queues.",
            (|thread| thread.polls) as fn(&ThreadCounts) -> u64,
        ),
        (
            "thread_empty_polls_total",
            "Polls that returned no frame.",
            |thread| thread.empty_polls,
        ),
        (
            "thread_bursts_total",
            "Polls that returned frames.",
            |thread| thread.bursts,
        ),
        (
            "thread_yields_total",
            "Number of times the thread yielded the CPU or slept.",
            |thread| thread.yields,
        ),
        (
            "thread_receive_frames_total",
            "Frames received.",
            |thread| thread.rx_frames,
        ),
        ("thread_transmit_frames_total", "Frames sent.", |thread| {
            thread.tx_frames
        }),
    ] {
        text.counter(name, help, each(of));
    }
    let late = threads
        .iter()
        .map(|thread| (vec![("cpu", thread.cpu.to_string())], thread.late_s));
    text.metric(
        "thread_late_seconds",
        "gauge",
        "For how long the thread has not replied to the control thread; 0 if it replies.",
        late,
    );
    of_steps(text, threads);
}

fn of_steps(text: &mut Text, threads: &[ThreadCounts]) {
    for (name, help, of) in [
        (
            "thread_step_cycles_total",
            "Cycles of the time stamp counter, by step.",
            (|step| step.cycles) as fn(&StepCounts) -> u64,
        ),
        (
            "thread_step_bursts_total",
            "Bursts processed, by step.",
            |step| step.bursts,
        ),
        (
            "thread_step_frames_total",
            "Frames processed, by step.",
            |step| step.frames,
        ),
    ] {
        let samples = threads.iter().flat_map(|thread| {
            let cpu = thread.cpu.to_string();
            thread.steps.iter().map(move |step| {
                let labels = vec![("cpu", cpu.clone()), ("step", step.step.clone())];
                (labels, of(step))
            })
        });
        text.counter(name, help, samples.collect::<Vec<_>>());
    }
}

fn of_queues(text: &mut Text, queues: &[QueueReport]) {
    // The labels omit the CPU, so that a series continues when its queue moves.
    let labels = |queue: &QueueReport| {
        vec![
            ("port", queue.port.clone()),
            ("queue", queue.queue.to_string()),
        ]
    };
    let cpus = queues
        .iter()
        .filter_map(|queue| Some((labels(queue), f64::from(queue.cpu?))));
    text.metric(
        "queue_cpu",
        "gauge",
        "CPU of the thread that serves a queue.",
        cpus.collect::<Vec<_>>(),
    );
    burst_sizes(text, queues);
    let each = |of: fn(&QueueReport) -> u64| {
        let labelled = move |queue: &QueueReport| (labels(queue), of(queue));
        queues.iter().map(labelled).collect::<Vec<_>>()
    };
    for (name, help, of) in [
        (
            "queue_bursts_total",
            "Polls of a receive queue that returned frames.",
            (|queue| queue.bursts) as fn(&QueueReport) -> u64,
        ),
        (
            "queue_frames_total",
            "Frames received from a queue.",
            |queue| queue.frames,
        ),
        (
            "queue_cycles_total",
            "Cycles of the time stamp counter spent on frames of a queue.",
            |queue| queue.cycles,
        ),
    ] {
        text.counter(name, help, each(of));
    }
    let loads = queues
        .iter()
        .filter_map(|queue| Some((labels(queue), queue.load?)));
    let loads: Vec<_> = loads.collect();
    text.metric(
        "queue_load_ratio",
        "gauge",
        "Share of a CPU that a queue costs.",
        loads,
    );
}

/// Adds the histogram of frames per burst.
fn burst_sizes(text: &mut Text, queues: &[QueueReport]) {
    let name = "quietwire_switch_queue_burst_frames";
    // Writing to a string cannot fail.
    let _ = writeln!(
        text.0,
        "# HELP {name} Frames per non-empty poll of a queue."
    );
    let _ = writeln!(text.0, "# TYPE {name} histogram");
    for queue in queues {
        let labels = format!(
            "port=\"{}\",queue=\"{}\"",
            escaped(&queue.port),
            queue.queue
        );
        let mut bursts = 0;
        for (log, count) in queue.burst_sizes.iter().enumerate() {
            bursts += count;
            let _ = writeln!(
                text.0,
                "{name}_bucket{{{labels},le=\"{}\"}} {bursts}",
                1 << log
            );
        }
        let _ = writeln!(text.0, "{name}_bucket{{{labels},le=\"+Inf\"}} {bursts}");
        let _ = writeln!(text.0, "{name}_sum{{{labels}}} {}", queue.frames);
        let _ = writeln!(text.0, "{name}_count{{{labels}}} {bursts}");
    }
}

fn of_steering(text: &mut Text, ports: &[SteerReport]) {
    let rules = ports.iter().flat_map(|port| {
        let samples = port.rules.iter().map(|rule| {
            let labels = vec![
                ("port", port.port.clone()),
                ("rule", rule.name.clone()),
                ("to", rule.to.name().to_owned()),
                ("by", port.by.name().to_owned()),
            ];
            (labels, rule.frames)
        });
        samples.collect::<Vec<_>>()
    });
    text.counter(
        "steer_frames_total",
        "Frames that a steering rule has decided on.",
        rules.collect::<Vec<_>>(),
    );
    let others = ports.iter().filter(|port| port.by != SteeredBy::Card);
    let unmatched = others.map(|port| {
        let labels = vec![("port", port.port.clone())];
        (labels, port.unmatched)
    });
    text.counter(
        "steer_unmatched_frames_total",
        "Frames that no steering rule of the port matched. The kernel got them.",
        unmatched.collect::<Vec<_>>(),
    );
}

fn of_bridges(text: &mut Text, bridges: &[BridgeCounts]) {
    let each = |of: fn(&BridgeCounts) -> u64| {
        let labelled =
            move |bridge: &BridgeCounts| (vec![("bridge", bridge.name.clone())], of(bridge));
        bridges.iter().map(labelled).collect::<Vec<_>>()
    };
    for (name, help, of) in [
        (
            "bridge_addresses",
            "Addresses known.",
            (|bridge| u64::from(bridge.entries)) as fn(&BridgeCounts) -> u64,
        ),
        (
            "bridge_addresses_max",
            "Maximum number of addresses.",
            |bridge| u64::from(bridge.max_entries),
        ),
    ] {
        let samples = each(of)
            .into_iter()
            .map(|(labels, value)| (labels, value as f64));
        text.metric(name, "gauge", help, samples);
    }
    for (name, help, of) in [
        (
            "bridge_flooded_frames_total",
            "Frames flooded.",
            (|bridge| bridge.flooded) as fn(&BridgeCounts) -> u64,
        ),
        ("bridge_learned_total", "Addresses learned.", |bridge| {
            bridge.learned
        }),
        (
            "bridge_moved_total",
            "Addresses that moved to another port.",
            |bridge| bridge.moved,
        ),
        (
            "bridge_flapped_total",
            "Moves of flapping addresses.",
            |bridge| bridge.flapped,
        ),
        (
            "bridge_not_learned_total",
            "Addresses that were not learned.",
            |bridge| bridge.not_learned,
        ),
        (
            "bridge_static_elsewhere_total",
            "Addresses not learned because of a static entry on another port.",
            |bridge| bridge.static_elsewhere,
        ),
        ("bridge_aged_total", "Addresses aged out.", |bridge| {
            bridge.aged
        }),
    ] {
        text.counter(name, help, each(of));
    }
}

fn of_router(text: &mut Text, router: &RouterCounts) {
    for (name, help, count) in [
        (
            "router_forwarded_packets_total",
            "Packets forwarded.",
            router.forwarded,
        ),
        (
            "router_fragmented_packets_total",
            "Packets forwarded in fragments.",
            router.fragmented,
        ),
        (
            "router_unsent_packets_total",
            "Packets that could not be sent, for lack of buffers or queue space.",
            router.not_sent,
        ),
        (
            "router_service_drops_total",
            "Packets lost because the ring to the service thread was full.",
            router.service_full,
        ),
        (
            "router_echo_replies_total",
            "Echo requests answered.",
            router.echoed,
        ),
        (
            "router_icmp_errors_total",
            "ICMP errors sent.",
            router.errors,
        ),
        (
            "router_unknown_protocol_packets_total",
            "Packets to the router itself without a receiver.",
            router.unknown_protocol,
        ),
        (
            "router_neighbour_requests_total",
            "Neighbour requests sent (ARP requests and neighbour solicitations).",
            router.neighbour_requests,
        ),
    ] {
        text.counter(name, help, [(vec![], count)]);
    }
    let by_reason = |reasons: &std::collections::BTreeMap<String, u64>| {
        let labelled =
            |(reason, count): (&String, &u64)| (vec![("reason", reason.clone())], *count);
        reasons.iter().map(labelled).collect::<Vec<_>>()
    };
    let dropped = by_reason(&router.dropped);
    text.counter("router_drops_total", "Packets dropped, by reason.", dropped);
    let punted = by_reason(&router.punted);
    text.counter(
        "router_punts_total",
        "Packets for the service thread, by reason.",
        punted,
    );
}

fn of_nats(text: &mut Text, nats: &[NatReport]) {
    if nats.is_empty() {
        return;
    }
    let label = |nat: &NatReport| vec![("nat", nat.name.clone())];
    for (name, help, of) in [
        (
            "nat_mappings",
            "Mappings of NAT.",
            (|nat| nat.mappings) as fn(&NatReport) -> u64,
        ),
        ("nat_hosts", "Inside hosts with mappings.", |nat| nat.hosts),
    ] {
        let samples = nats.iter().map(|nat| (label(nat), of(nat) as f64));
        text.metric(name, "gauge", help, samples);
    }
    for (name, help, of) in [
        (
            "nat_created_mappings_total",
            "New mappings of NAT.",
            (|nat| nat.created) as fn(&NatReport) -> u64,
        ),
        (
            "nat_expired_mappings_total",
            "Expired mappings of NAT.",
            |nat| nat.expired,
        ),
        (
            "nat_lost_events_total",
            "Events of port blocks that are not in the log.",
            |nat| nat.events_lost,
        ),
    ] {
        let samples = nats.iter().map(|nat| (label(nat), of(nat)));
        text.counter(name, help, samples);
    }
    let packets = nats.iter().flat_map(|nat| {
        let directions = [
            ("outbound", nat.outbound),
            ("inbound", nat.inbound),
            ("hairpinned", nat.hairpinned),
        ];
        directions.map(|(direction, count)| {
            let labels = vec![
                ("nat", nat.name.clone()),
                ("direction", direction.to_owned()),
            ];
            (labels, count)
        })
    });
    text.counter("nat_packets_total", "Packets translated by NAT.", packets);
    let refused = nats.iter().flat_map(|nat| {
        nat.refused.iter().map(|(reason, count)| {
            let labels = vec![("nat", nat.name.clone()), ("reason", reason.clone())];
            (labels, *count)
        })
    });
    text.counter(
        "nat_refused_packets_total",
        "Packets that NAT did not translate, by reason.",
        refused,
    );
}

fn of_balancers(text: &mut Text, balancers: &[LoadBalancerReport]) {
    if balancers.is_empty() {
        return;
    }
    let label = |one: &LoadBalancerReport| vec![("load_balancer", one.name.clone())];
    let created = balancers.iter().map(|one| (label(one), one.created));
    text.counter(
        "load_balancer_connections_total",
        "New connections of load balancers.",
        created,
    );
    let each = |of: fn(&BackendReport) -> u64| {
        let all = balancers.iter().flat_map(move |one| {
            one.backends.iter().map(move |backend| {
                let mut labels = label(one);
                labels.push(("backend", backend.endpoint.to_string()));
                (labels, of(backend))
            })
        });
        all.collect::<Vec<_>>()
    };
    let connections = each(|one| one.connections);
    let connections = connections.into_iter();
    text.metric(
        "backend_connections",
        "gauge",
        "Connections of a backend.",
        connections.map(|(labels, count)| (labels, count as f64)),
    );
    text.counter(
        "backend_receive_packets_total",
        "Packets to a backend.",
        each(|one| one.packets_in),
    );
    text.counter(
        "backend_transmit_packets_total",
        "Packets from a backend.",
        each(|one| one.packets_out),
    );
}

#[cfg(test)]
mod tests {
    use quietwire_tables::filter::PacketMatch;

    use super::*;
    use crate::config::steer::SteerTo;
    use crate::report::SteerRuleReport;

    fn steering() -> SteerReport {
        SteerReport {
            port: "wan".to_owned(),
            by: SteeredBy::Xdp,
            kernel_port: None,
            rules: vec![SteerRuleReport {
                name: "dns".to_owned(),
                to: SteerTo::Switch,
                queue: None,
                virtual_function: None,
                card: None,
                misplaced: 0,
                source_mac: None,
                destination_mac: None,
                vlan: None,
                packet: PacketMatch::default(),
                frames: 5,
            }],
            unmatched: 4,
        }
    }

    #[test]
    fn labels_are_escaped_and_counts_are_there() {
        let mut stats = StatsReport::default();
        stats.router.forwarded = 12;
        let mut port = PortReport {
            link_up: true,
            ..PortReport::default()
        };
        port.counts.name = "a\"b\\c".to_owned();
        port.counts.rx_frames = 7;
        port.driver.insert("rx_good_packets".to_owned(), 8);
        let nat = NatReport {
            name: "internet".to_owned(),
            mappings: 5,
            inbound: 6,
            ..NatReport::default()
        };
        let reports = EngineReports {
            stats: &stats,
            ports: &[port],
            queues: &[],
            steered: &[steering()],
            nats: &[nat],
            balancers: &[],
        };
        let text = exposition(&reports, &[(Role::Forwarding, 3)]);
        for line in [
            "quietwire_switch_router_forwarded_packets_total 12",
            "quietwire_switch_port_receive_frames_total{port=\"a\\\"b\\\\c\"} 7",
            "# TYPE quietwire_switch_port_up gauge",
            "quietwire_switch_port_driver_statistic{port=\"a\\\"b\\\\c\",name=\"rx_good_packets\"} 8",
            "quietwire_switch_steer_frames_total{port=\"wan\",rule=\"dns\",to=\"switch\",by=\"xdp\"} 5",
            "quietwire_switch_steer_unmatched_frames_total{port=\"wan\"} 4",
            "quietwire_switch_nat_mappings{nat=\"internet\"} 5",
            "quietwire_switch_nat_packets_total{nat=\"internet\",direction=\"inbound\"} 6",
            "quietwire_switch_denied_calls_total{role=\"forwarding\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
