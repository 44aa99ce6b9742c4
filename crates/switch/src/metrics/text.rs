// SPDX-License-Identifier: Apache-2.0
//! Reports as Prometheus metrics.

use quietwire_base::metrics::{Histogram, Labels, Metric, MetricsText};

use crate::report::{
    BackendReport, BridgeCounts, ConnectionsReport, KernelForwardingState, LoadBalancerReport,
    NatReport, PortReport, QueueReport, ReplicationReport, Role, RouterCounts, StatsReport,
    SteerReport, SteeredBy, StepCounts, ThreadCounts,
};

/// Reports of the engine that metrics are made of.
pub(crate) struct EngineReports<'a> {
    pub(crate) stats: &'a StatsReport,
    pub(crate) ports: &'a [PortReport],
    pub(crate) queues: &'a [QueueReport],
    pub(crate) steered: &'a [SteerReport],
    pub(crate) connections: Option<&'a ConnectionsReport>,
    pub(crate) nats: &'a [NatReport],
    pub(crate) balancers: &'a [LoadBalancerReport],
    pub(crate) replication: Option<&'a ReplicationReport>,
}

/// Renders all metrics.
pub(crate) fn exposition(reports: &EngineReports<'_>, denied_calls: &[(Role, u64)]) -> String {
    let EngineReports {
        stats,
        ports,
        queues,
        steered,
        connections,
        nats,
        balancers,
        replication,
    } = *reports;
    let mut text = MetricsText::default();
    text.add(Metric::SwitchUptimeSeconds, [(vec![], stats.uptime_s)]);
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    text.add(Metric::SwitchInfo, [(version, 1.0)]);
    of_ports(&mut text, ports);
    of_threads(&mut text, &stats.threads);
    let denied_calls = denied_calls
        .iter()
        .map(|(role, calls)| (vec![("role", role.name().to_owned())], *calls));
    text.add_counts(Metric::SwitchDeniedCallsTotal, denied_calls);
    of_queues(&mut text, queues);
    of_steering(&mut text, steered);
    of_bridges(&mut text, &stats.bridges);
    of_router(&mut text, &stats.router);
    of_connections(&mut text, connections);
    of_nats(&mut text, nats);
    of_balancers(&mut text, balancers);
    of_replication(&mut text, replication);
    text.finish()
}

fn of_ports(text: &mut MetricsText, ports: &[PortReport]) {
    let each = |of: fn(&PortReport) -> u64| {
        let labelled =
            move |port: &PortReport| (vec![("port", port.counts.name.clone())], of(port));
        ports.iter().map(labelled).collect::<Vec<_>>()
    };
    let up = each(|port| u64::from(port.link_up));
    let up = up.into_iter().map(|(labels, value)| (labels, value as f64));
    text.add(Metric::SwitchPortUp, up);
    let kept = each(|port| port.kept_card_rules.len() as u64);
    let kept = kept
        .into_iter()
        .map(|(labels, value)| (labels, value as f64));
    text.add(Metric::SwitchPortKeptCardRules, kept);
    for (metric, of) in [
        (
            Metric::SwitchPortReceiveFramesTotal,
            (|port| port.counts.rx_frames) as fn(&PortReport) -> u64,
        ),
        (Metric::SwitchPortReceiveBytesTotal, |port| {
            port.counts.rx_octets
        }),
        (Metric::SwitchPortLinkChangesTotal, |port| port.link_changes),
        (Metric::SwitchPortTransmitFramesTotal, |port| {
            port.counts.tx_frames
        }),
        (Metric::SwitchPortTransmitBytesTotal, |port| {
            port.counts.tx_octets
        }),
        (Metric::SwitchPortTransmitTsoFramesTotal, |port| {
            port.counts.tx_tso_frames
        }),
        (Metric::SwitchPortSegmentedFramesTotal, |port| {
            port.counts.segmented
        }),
        (Metric::SwitchPortMergedFramesTotal, |port| {
            port.counts.merged
        }),
        (Metric::SwitchPortKernelForwardedFramesTotal, |port| {
            port.counts.kernel_forwarded
        }),
    ] {
        text.add_counts(metric, each(of));
    }
    let drops = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.counts.drops.iter().map(move |(reason, count)| {
            let labels = vec![("port", name.clone()), ("reason", reason.name().to_owned())];
            (labels, count)
        })
    });
    let drops: Vec<_> = drops.collect();
    text.add_counts(Metric::SwitchPortDropsTotal, drops);
    let effects = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.counts.effects.iter().map(move |(effect, count)| {
            let labels = vec![("port", name.clone()), ("effect", effect.name().to_owned())];
            (labels, count)
        })
    });
    let effects: Vec<_> = effects.collect();
    text.add_counts(Metric::SwitchPortRuleEffectsTotal, effects);
    let statistics = ports.iter().flat_map(|port| {
        let name = port.counts.name.clone();
        port.driver.iter().map(move |(statistic, value)| {
            let labels = vec![("port", name.clone()), ("name", statistic.clone())];
            (labels, *value as f64)
        })
    });
    let statistics: Vec<_> = statistics.collect();
    // Most are counters, but not all of them.
    text.add(Metric::SwitchPortDriverStatistic, statistics);
}

fn of_threads(text: &mut MetricsText, threads: &[ThreadCounts]) {
    let each = |of: fn(&ThreadCounts) -> u64| {
        let labelled =
            move |thread: &ThreadCounts| (vec![("cpu", thread.cpu.to_string())], of(thread));
        threads.iter().map(labelled).collect::<Vec<_>>()
    };
    for (metric, of) in [
        (
            Metric::SwitchThreadPollsTotal,
            (|thread| thread.polls) as fn(&ThreadCounts) -> u64,
        ),
        (Metric::SwitchThreadEmptyPollsTotal, |thread| {
            thread.empty_polls
        }),
        (Metric::SwitchThreadBurstsTotal, |thread| thread.bursts),
        (Metric::SwitchThreadYieldsTotal, |thread| thread.yields),
        (Metric::SwitchThreadReceiveFramesTotal, |thread| {
            thread.rx_frames
        }),
        (Metric::SwitchThreadTransmitFramesTotal, |thread| {
            thread.tx_frames
        }),
    ] {
        text.add_counts(metric, each(of));
    }
    let late = threads
        .iter()
        .map(|thread| (vec![("cpu", thread.cpu.to_string())], thread.late_s));
    text.add(Metric::SwitchThreadLateSeconds, late);
    of_steps(text, threads);
}

fn of_steps(text: &mut MetricsText, threads: &[ThreadCounts]) {
    for (metric, of) in [
        (
            Metric::SwitchThreadStepCyclesTotal,
            (|step| step.cycles) as fn(&StepCounts) -> u64,
        ),
        (Metric::SwitchThreadStepBurstsTotal, |step| step.bursts),
        (Metric::SwitchThreadStepFramesTotal, |step| step.frames),
    ] {
        let samples = threads.iter().flat_map(|thread| {
            let cpu = thread.cpu.to_string();
            thread.steps.iter().map(move |step| {
                let labels = vec![("cpu", cpu.clone()), ("step", step.step.clone())];
                (labels, of(step))
            })
        });
        text.add_counts(metric, samples.collect::<Vec<_>>());
    }
}

/// Returns the labels of a queue. They omit the CPU, so that a series continues when its queue moves.
fn queue_labels(queue: &QueueReport) -> Labels {
    vec![
        ("port", queue.port.clone()),
        ("queue", queue.queue.to_string()),
    ]
}

fn of_queues(text: &mut MetricsText, queues: &[QueueReport]) {
    let cpus = queues
        .iter()
        .filter_map(|queue| Some((queue_labels(queue), f64::from(queue.cpu?))));
    text.add(Metric::SwitchQueueCpu, cpus.collect::<Vec<_>>());
    burst_sizes(text, queues);
    let each = |of: fn(&QueueReport) -> u64| {
        let labelled = move |queue: &QueueReport| (queue_labels(queue), of(queue));
        queues.iter().map(labelled).collect::<Vec<_>>()
    };
    for (metric, of) in [
        (
            Metric::SwitchQueueBurstsTotal,
            (|queue| queue.bursts) as fn(&QueueReport) -> u64,
        ),
        (Metric::SwitchQueueFramesTotal, |queue| queue.frames),
        (Metric::SwitchQueueCyclesTotal, |queue| queue.cycles),
    ] {
        text.add_counts(metric, each(of));
    }
    let loads = queues
        .iter()
        .filter_map(|queue| Some((queue_labels(queue), queue.load?)));
    let loads: Vec<_> = loads.collect();
    text.add(Metric::SwitchQueueLoadRatio, loads);
}

/// Adds the histogram of frames per burst.
fn burst_sizes(text: &mut MetricsText, queues: &[QueueReport]) {
    let histograms = queues.iter().map(|queue| {
        let sizes = queue.burst_sizes.iter().enumerate();
        let histogram = Histogram {
            buckets: sizes.map(|(log, count)| (1_u64 << log, *count)).collect(),
            sum: queue.frames,
        };
        (queue_labels(queue), histogram)
    });
    text.add_histograms(Metric::SwitchQueueBurstFrames, histograms);
}

fn of_steering(text: &mut MetricsText, ports: &[SteerReport]) {
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
    text.add_counts(Metric::SwitchSteerFramesTotal, rules.collect::<Vec<_>>());
    let others = ports.iter().filter(|port| port.by != SteeredBy::Card);
    let unmatched = others.map(|port| {
        let labels = vec![("port", port.port.clone())];
        (labels, port.unmatched)
    });
    text.add_counts(
        Metric::SwitchSteerUnmatchedFramesTotal,
        unmatched.collect::<Vec<_>>(),
    );
}

fn of_bridges(text: &mut MetricsText, bridges: &[BridgeCounts]) {
    let each = |of: fn(&BridgeCounts) -> u64| {
        let labelled =
            move |bridge: &BridgeCounts| (vec![("bridge", bridge.name.clone())], of(bridge));
        bridges.iter().map(labelled).collect::<Vec<_>>()
    };
    for (metric, of) in [
        (
            Metric::SwitchBridgeAddresses,
            (|bridge| u64::from(bridge.entries)) as fn(&BridgeCounts) -> u64,
        ),
        (Metric::SwitchBridgeAddressesMax, |bridge| {
            u64::from(bridge.max_entries)
        }),
        (Metric::SwitchBridgeKernelForwardingActive, |bridge| {
            let report = bridge.kernel_forwarding.as_ref();
            u64::from(report.is_some_and(|one| one.state == KernelForwardingState::Active))
        }),
    ] {
        let samples = each(of)
            .into_iter()
            .map(|(labels, value)| (labels, value as f64));
        text.add(metric, samples);
    }
    for (metric, of) in [
        (
            Metric::SwitchBridgeFloodedFramesTotal,
            (|bridge| bridge.flooded) as fn(&BridgeCounts) -> u64,
        ),
        (Metric::SwitchBridgeLearnedTotal, |bridge| bridge.learned),
        (Metric::SwitchBridgeMovedTotal, |bridge| bridge.moved),
        (Metric::SwitchBridgeFlappedTotal, |bridge| bridge.flapped),
        (Metric::SwitchBridgeNotLearnedTotal, |bridge| {
            bridge.not_learned
        }),
        (Metric::SwitchBridgeStaticElsewhereTotal, |bridge| {
            bridge.static_elsewhere
        }),
        (Metric::SwitchBridgeAgedTotal, |bridge| bridge.aged),
    ] {
        text.add_counts(metric, each(of));
    }
}

fn of_router(text: &mut MetricsText, router: &RouterCounts) {
    for (metric, count) in [
        (Metric::SwitchRouterForwardedPacketsTotal, router.forwarded),
        (
            Metric::SwitchRouterFragmentedPacketsTotal,
            router.fragmented,
        ),
        (Metric::SwitchRouterUnsentPacketsTotal, router.not_sent),
        (Metric::SwitchRouterServiceDropsTotal, router.service_full),
        (Metric::SwitchRouterEchoRepliesTotal, router.echoed),
        (Metric::SwitchRouterIcmpErrorsTotal, router.errors),
        (
            Metric::SwitchRouterUnknownProtocolPacketsTotal,
            router.unknown_protocol,
        ),
        (
            Metric::SwitchRouterNeighbourRequestsTotal,
            router.neighbour_requests,
        ),
    ] {
        text.add_counts(metric, [(vec![], count)]);
    }
    let by_reason = |reasons: &std::collections::BTreeMap<String, u64>| {
        let labelled =
            |(reason, count): (&String, &u64)| (vec![("reason", reason.clone())], *count);
        reasons.iter().map(labelled).collect::<Vec<_>>()
    };
    let dropped = by_reason(&router.dropped);
    text.add_counts(Metric::SwitchRouterDropsTotal, dropped);
    let punted = by_reason(&router.punted);
    text.add_counts(Metric::SwitchRouterPuntsTotal, punted);
}

fn of_connections(text: &mut MetricsText, connections: Option<&ConnectionsReport>) {
    let Some(report) = connections else {
        return;
    };
    for (metric, count) in [
        (Metric::SwitchConnections, report.total),
        (Metric::SwitchHalfOpenConnections, report.half_open),
    ] {
        text.add(metric, [(vec![], count as f64)]);
    }
    let counters = &report.counters;
    let by_reason = |reason: &str, count| (vec![("reason", reason.to_owned())], count);
    text.add_counts(
        Metric::SwitchCreatedConnectionsTotal,
        [(vec![], counters.created)],
    );
    text.add_counts(
        Metric::SwitchReplacedConnectionsTotal,
        [
            by_reason("table_full", counters.dropped_early),
            by_reason("half_open", counters.dropped_half_open),
        ],
    );
    let refused = counters.refused.iter();
    text.add_counts(
        Metric::SwitchRefusedConnectionsTotal,
        refused.map(|(reason, count)| by_reason(reason, *count)),
    );
}

fn of_nats(text: &mut MetricsText, nats: &[NatReport]) {
    if nats.is_empty() {
        return;
    }
    let label = |nat: &NatReport| vec![("nat", nat.name.clone())];
    for (metric, of) in [
        (
            Metric::SwitchNatMappings,
            (|nat| nat.mappings) as fn(&NatReport) -> u64,
        ),
        (Metric::SwitchNatHosts, |nat| nat.hosts),
    ] {
        let samples = nats.iter().map(|nat| (label(nat), of(nat) as f64));
        text.add(metric, samples);
    }
    for (metric, of) in [
        (
            Metric::SwitchNatCreatedMappingsTotal,
            (|nat| nat.created) as fn(&NatReport) -> u64,
        ),
        (Metric::SwitchNatExpiredMappingsTotal, |nat| nat.expired),
        (Metric::SwitchNatLostEventsTotal, |nat| nat.events_lost),
    ] {
        let samples = nats.iter().map(|nat| (label(nat), of(nat)));
        text.add_counts(metric, samples);
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
    text.add_counts(Metric::SwitchNatPacketsTotal, packets);
    let refused = nats.iter().flat_map(|nat| {
        nat.refused.iter().map(|(reason, count)| {
            let labels = vec![("nat", nat.name.clone()), ("reason", reason.clone())];
            (labels, *count)
        })
    });
    text.add_counts(Metric::SwitchNatRefusedPacketsTotal, refused);
}

fn of_balancers(text: &mut MetricsText, balancers: &[LoadBalancerReport]) {
    if balancers.is_empty() {
        return;
    }
    let label = |one: &LoadBalancerReport| vec![("load_balancer", one.name.clone())];
    let created = balancers.iter().map(|one| (label(one), one.created));
    text.add_counts(Metric::SwitchLoadBalancerConnectionsTotal, created);
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
    text.add(
        Metric::SwitchBackendConnections,
        connections.map(|(labels, count)| (labels, count as f64)),
    );
    text.add_counts(
        Metric::SwitchBackendReceivePacketsTotal,
        each(|one| one.packets_in),
    );
    text.add_counts(
        Metric::SwitchBackendTransmitPacketsTotal,
        each(|one| one.packets_out),
    );
}

fn of_replication(text: &mut MetricsText, replication: Option<&ReplicationReport>) {
    let Some(replication) = replication else {
        return;
    };
    let complete = replication.peers.iter().filter(|peer| peer.is_complete);
    let complete = complete.count() as f64;
    text.add(Metric::SwitchReplicationPeers, [(vec![], complete)]);
    let differ = f64::from(!replication.differing_settings.is_empty());
    text.add(Metric::SwitchReplicationSettingsDiffer, [(vec![], differ)]);
    for (metric, count) in [
        (Metric::SwitchReplicationSentTotal, replication.sent),
        (Metric::SwitchReplicationLostTotal, replication.lost),
        (Metric::SwitchReplicationPassesTotal, replication.passes),
    ] {
        text.add_counts(metric, [(vec![], count)]);
    }
    let results = [
        ("added", replication.added),
        ("updated", replication.updated),
        ("removed", replication.removed),
        ("full", replication.full),
        ("invalid", replication.invalid),
    ];
    let received = results.map(|(result, count)| (vec![("result", result.to_owned())], count));
    text.add_counts(Metric::SwitchReplicationReceivedTotal, received);
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use quietwire_tables::filter::PacketMatch;

    use super::*;
    use crate::config::steer::SteerTo;
    use crate::report::{PortDrop, SteerRuleReport};

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
        let mut connections = ConnectionsReport {
            half_open: 9,
            ..ConnectionsReport::default()
        };
        connections.counters.dropped_half_open = 10;
        let reports = EngineReports {
            stats: &stats,
            ports: &[port],
            queues: &[],
            steered: &[steering()],
            connections: Some(&connections),
            nats: &[nat],
            balancers: &[],
            replication: None,
        };
        let text = exposition(&reports, &[(Role::Forwarding, 3)]);
        for line in [
            "quietwire_switch_router_forwarded_packets_total 12",
            "quietwire_switch_port_receive_frames_total{port=\"a\\\"b\\\\c\"} 7",
            "# TYPE quietwire_switch_port_up gauge",
            "quietwire_switch_port_driver_statistic{port=\"a\\\"b\\\\c\",name=\"rx_good_packets\"} 8",
            "quietwire_switch_steer_frames_total{port=\"wan\",rule=\"dns\",to=\"switch\",by=\"xdp\"} 5",
            "quietwire_switch_steer_unmatched_frames_total{port=\"wan\"} 4",
            "quietwire_switch_half_open_connections 9",
            "quietwire_switch_replaced_connections_total{reason=\"half_open\"} 10",
            "quietwire_switch_nat_mappings{nat=\"internet\"} 5",
            "quietwire_switch_nat_packets_total{nat=\"internet\",direction=\"inbound\"} 6",
            "quietwire_switch_denied_calls_total{role=\"forwarding\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    fn balancer() -> LoadBalancerReport {
        let endpoint = "192.0.2.1:80".parse().unwrap();
        LoadBalancerReport {
            name: "web".to_owned(),
            protocol: "tcp".to_owned(),
            endpoint,
            connections: 1,
            max_connections: 2,
            created: 1,
            moved: 0,
            replaced: 0,
            dropped: BTreeMap::new(),
            backends: vec![BackendReport {
                endpoint,
                weight: 1,
                state: "up".to_owned(),
                connections: 1,
                packets_in: 1,
                packets_out: 1,
            }],
        }
    }

    #[test]
    fn every_metric_of_the_switch_is_exported() {
        let mut stats = StatsReport {
            threads: vec![ThreadCounts {
                steps: vec![StepCounts::default()],
                ..ThreadCounts::default()
            }],
            bridges: vec![BridgeCounts::default()],
            ..StatsReport::default()
        };
        let reasons = BTreeMap::from([("a".to_owned(), 1)]);
        stats.router.dropped.clone_from(&reasons);
        stats.router.punted.clone_from(&reasons);
        let port = PortReport {
            driver: reasons.clone(),
            ..PortReport::default()
        };
        let queue = QueueReport {
            cpu: Some(1),
            load: Some(0.5),
            ..QueueReport::default()
        };
        let mut connections = ConnectionsReport::default();
        connections.counters.refused.clone_from(&reasons);
        let nat = NatReport {
            refused: reasons,
            ..NatReport::default()
        };
        let reports = EngineReports {
            stats: &stats,
            ports: &[port],
            queues: &[queue],
            steered: &[steering()],
            connections: Some(&connections),
            nats: &[nat],
            balancers: &[balancer()],
            replication: Some(&ReplicationReport::default()),
        };
        let text = exposition(&reports, &[(Role::Control, 0)]);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let names = samples.filter_map(|line| line.split(['{', ' ']).next());
        let exported: BTreeSet<&str> = names
            .map(|name| name.strip_suffix("_bucket").unwrap_or(name))
            .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
            .collect();
        let all = Metric::ALL.iter().map(|metric| metric.name());
        let own: BTreeSet<&str> = all
            .filter(|name| name.starts_with("quietwire_switch_"))
            .collect();
        assert_eq!(exported, own);
    }

    /// Returns true if the switch dropped a frame that it should have forwarded. Each new reason requires a decision here.
    const fn is_loss(reason: PortDrop) -> bool {
        match reason {
            PortDrop::TxFull
            | PortDrop::NoOutput
            | PortDrop::NotSegmented
            | PortDrop::OwnerBusy
            | PortDrop::NoBuffers
            | PortDrop::RxMissed
            | PortDrop::RxErrors => true,
            PortDrop::Short
            | PortDrop::Filtered
            | PortDrop::ReservedAddress
            | PortDrop::Denied
            | PortDrop::Rejected
            | PortDrop::DeniedOut
            | PortDrop::GuardMac
            | PortDrop::GuardIp
            | PortDrop::GuardArp
            | PortDrop::GuardNd
            | PortDrop::Malformed
            | PortDrop::ConnectionRefused
            | PortDrop::NewShare
            | PortDrop::FragmentTimeout
            | PortDrop::FragmentOverflow
            | PortDrop::Inspector
            | PortDrop::NoVerdict
            | PortDrop::InvalidVerdict
            | PortDrop::FrameType
            | PortDrop::NotMember
            | PortDrop::NoMember
            | PortDrop::NoInput
            | PortDrop::SplitHorizon
            | PortDrop::NotFlooded
            | PortDrop::StormUnknownUnicast
            | PortDrop::StormBroadcast
            | PortDrop::StormMulticast
            | PortDrop::OverLimit => false,
        }
    }

    #[test]
    fn the_alert_about_lost_frames_has_every_reason_that_is_a_loss() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/monitoring/alerts.yaml"
        );
        let rules = std::fs::read_to_string(path).unwrap();
        let (_, after) = rules.split_once("reason=~\"").unwrap();
        let (reasons, _) = after.split_once('"').unwrap();
        let named: BTreeSet<&str> = reasons.split('|').collect();
        let all = PortDrop::ALL.iter().filter(|reason| is_loss(**reason));
        let lost: BTreeSet<&str> = all.map(|reason| reason.name()).collect();
        assert_eq!(named, lost);
    }
}
