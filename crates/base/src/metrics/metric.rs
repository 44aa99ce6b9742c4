// SPDX-License-Identifier: Apache-2.0
//! The list of all metrics. Names follow Prometheus' conventions: base units, `_total` for counters.

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that never decreases while the program runs.
    Counter,
    /// A value that may decrease.
    Gauge,
    /// Numbers of values up to each bound, and their sum.
    Histogram,
}

impl MetricKind {
    /// Returns its name in the text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Defines the metrics: variant, type, name, labels and help text.
macro_rules! metrics {
    ($($variant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        /// A metric. The program exports these and no others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric {
            $(#[doc = $help] $variant,)+
        }

        impl Metric {
            /// All metrics.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns its name: `quietwire_`, the part of quietwire that exports it, and the quantity.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns its type.
            #[must_use]
            pub const fn kind(self) -> MetricKind {
                match self {
                    $(Self::$variant => MetricKind::$kind,)+
                }
            }

            /// Returns the names of its labels, in the order in which they are exported.
            #[must_use]
            pub const fn labels(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($label),*],)+
                }
            }

            /// Returns its help text.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)+
                }
            }
        }
    };
}

metrics! {
    SwitchUptimeSeconds = Gauge "quietwire_switch_uptime_seconds" []
        "Time since the switch started.";
    SwitchInfo = Gauge "quietwire_switch_info" ["version"]
        "The version of the switch.";
    SwitchDeniedCallsTotal = Counter "quietwire_switch_denied_calls_total" ["role"]
        "System calls that seccomp filters denied, by role of the thread.";
    SwitchPortUp = Gauge "quietwire_switch_port_up" ["port"]
        "1 while the port's link is up.";
    SwitchPortReceiveFramesTotal = Counter "quietwire_switch_port_receive_frames_total" ["port"]
        "Frames received.";
    SwitchPortReceiveBytesTotal = Counter "quietwire_switch_port_receive_bytes_total" ["port"]
        "Octets received, without FCS.";
    SwitchPortLinkChangesTotal = Counter "quietwire_switch_port_link_changes_total" ["port"]
        "Changes of the link of a network card, read once a second.";
    SwitchPortKeptCardRules = Gauge "quietwire_switch_port_kept_card_rules" ["port"]
        "Former filter rules that a network card did not remove, so that it drops their frames.";
    SwitchPortTransmitFramesTotal = Counter "quietwire_switch_port_transmit_frames_total" ["port"]
        "Frames sent.";
    SwitchPortTransmitBytesTotal = Counter "quietwire_switch_port_transmit_bytes_total" ["port"]
        "Octets sent, without FCS.";
    SwitchPortTransmitTsoFramesTotal = Counter "quietwire_switch_port_transmit_tso_frames_total" ["port"]
        "Frames sent with unsegmented TCP data.";
    SwitchPortSegmentedFramesTotal = Counter "quietwire_switch_port_segmented_frames_total" ["port"]
        "Frames with TCP data that were cut into segments before they were sent.";
    SwitchPortMergedFramesTotal = Counter "quietwire_switch_port_merged_frames_total" ["port"]
        "TCP segments and UDP datagrams that were merged into larger frames before they were sent.";
    SwitchPortKernelForwardedFramesTotal = Counter "quietwire_switch_port_kernel_forwarded_frames_total" ["port"]
        "Frames received that the kernel forwarded, among all frames received.";
    SwitchPortDropsTotal = Counter "quietwire_switch_port_drops_total" ["port", "reason"]
        "Frames dropped, by reason.";
    SwitchPortRuleEffectsTotal = Counter "quietwire_switch_port_rule_effects_total" ["port", "effect"]
        "Frames by effect of the filter rules.";
    SwitchPortDriverStatistic = Gauge "quietwire_switch_port_driver_statistic" ["port", "name"]
        "Statistics of the port's driver that are not 0, by the driver's names.";
    SwitchThreadPollsTotal = Counter "quietwire_switch_thread_polls_total" ["cpu"]
        "Polls of receive queues.";
    SwitchThreadEmptyPollsTotal = Counter "quietwire_switch_thread_empty_polls_total" ["cpu"]
        "Polls that returned no frame.";
    SwitchThreadBurstsTotal = Counter "quietwire_switch_thread_bursts_total" ["cpu"]
        "Polls that returned frames.";
    SwitchThreadYieldsTotal = Counter "quietwire_switch_thread_yields_total" ["cpu"]
        "Number of times the thread yielded the CPU or slept.";
    SwitchThreadReceiveFramesTotal = Counter "quietwire_switch_thread_receive_frames_total" ["cpu"]
        "Frames received.";
    SwitchThreadTransmitFramesTotal = Counter "quietwire_switch_thread_transmit_frames_total" ["cpu"]
        "Frames sent.";
    SwitchThreadLateSeconds = Gauge "quietwire_switch_thread_late_seconds" ["cpu"]
        "Time for which the thread has not replied to the control thread; 0 if it replies.";
    SwitchThreadStepCyclesTotal = Counter "quietwire_switch_thread_step_cycles_total" ["cpu", "step"]
        "Cycles of the time stamp counter, by step.";
    SwitchThreadStepBurstsTotal = Counter "quietwire_switch_thread_step_bursts_total" ["cpu", "step"]
        "Bursts processed, by step.";
    SwitchThreadStepFramesTotal = Counter "quietwire_switch_thread_step_frames_total" ["cpu", "step"]
        "Frames processed, by step.";
    SwitchQueueCpu = Gauge "quietwire_switch_queue_cpu" ["port", "queue"]
        "CPU of the thread that serves a queue.";
    SwitchQueueBurstFrames = Histogram "quietwire_switch_queue_burst_frames" ["port", "queue"]
        "Frames per non-empty poll of a queue.";
    SwitchQueueBurstsTotal = Counter "quietwire_switch_queue_bursts_total" ["port", "queue"]
        "Polls of a receive queue that returned frames.";
    SwitchQueueFramesTotal = Counter "quietwire_switch_queue_frames_total" ["port", "queue"]
        "Frames received from a queue.";
    SwitchQueueCyclesTotal = Counter "quietwire_switch_queue_cycles_total" ["port", "queue"]
        "Cycles of the time stamp counter spent on frames of a queue.";
    SwitchQueueLoadRatio = Gauge "quietwire_switch_queue_load_ratio" ["port", "queue"]
        "Share of a CPU that a queue costs.";
    SwitchSteerFramesTotal = Counter "quietwire_switch_steer_frames_total" ["port", "rule", "to", "by"]
        "Frames that a steering rule has decided on.";
    SwitchSteerUnmatchedFramesTotal = Counter "quietwire_switch_steer_unmatched_frames_total" ["port"]
        "Frames that no steering rule of the port matched. The kernel got them.";
    SwitchBridgeAddresses = Gauge "quietwire_switch_bridge_addresses" ["bridge"]
        "Addresses known.";
    SwitchBridgeAddressesMax = Gauge "quietwire_switch_bridge_addresses_max" ["bridge"]
        "Maximum number of addresses.";
    SwitchBridgeKernelForwardingActive = Gauge "quietwire_switch_bridge_kernel_forwarding_active" ["bridge"]
        "1 while the kernel forwards between veth ports of the bridge.";
    SwitchBridgeFloodedFramesTotal = Counter "quietwire_switch_bridge_flooded_frames_total" ["bridge"]
        "Frames flooded.";
    SwitchBridgeLearnedTotal = Counter "quietwire_switch_bridge_learned_total" ["bridge"]
        "Addresses learned.";
    SwitchBridgeMovedTotal = Counter "quietwire_switch_bridge_moved_total" ["bridge"]
        "Addresses that moved to another port.";
    SwitchBridgeFlappedTotal = Counter "quietwire_switch_bridge_flapped_total" ["bridge"]
        "Moves of flapping addresses.";
    SwitchBridgeNotLearnedTotal = Counter "quietwire_switch_bridge_not_learned_total" ["bridge"]
        "Addresses that were not learned.";
    SwitchBridgeStaticElsewhereTotal = Counter "quietwire_switch_bridge_static_elsewhere_total" ["bridge"]
        "Addresses not learned because of a static entry on another port.";
    SwitchBridgeAgedTotal = Counter "quietwire_switch_bridge_aged_total" ["bridge"]
        "Addresses aged out.";
    SwitchRouterForwardedPacketsTotal = Counter "quietwire_switch_router_forwarded_packets_total" []
        "Packets forwarded.";
    SwitchRouterFragmentedPacketsTotal = Counter "quietwire_switch_router_fragmented_packets_total" []
        "Packets forwarded in fragments.";
    SwitchRouterUnsentPacketsTotal = Counter "quietwire_switch_router_unsent_packets_total" []
        "Packets that could not be sent, for lack of buffers or queue space.";
    SwitchRouterServiceDropsTotal = Counter "quietwire_switch_router_service_drops_total" []
        "Packets lost because the ring to the service thread was full.";
    SwitchRouterEchoRepliesTotal = Counter "quietwire_switch_router_echo_replies_total" []
        "Echo requests answered.";
    SwitchRouterIcmpErrorsTotal = Counter "quietwire_switch_router_icmp_errors_total" []
        "ICMP errors sent.";
    SwitchRouterUnknownProtocolPacketsTotal = Counter "quietwire_switch_router_unknown_protocol_packets_total" []
        "Packets to the router itself without a receiver.";
    SwitchRouterNeighbourRequestsTotal = Counter "quietwire_switch_router_neighbour_requests_total" []
        "Neighbour requests sent (ARP requests and neighbour solicitations).";
    SwitchRouterDropsTotal = Counter "quietwire_switch_router_drops_total" ["reason"]
        "Packets dropped, by reason.";
    SwitchRouterPuntsTotal = Counter "quietwire_switch_router_punts_total" ["reason"]
        "Packets for the service thread, by reason.";
    SwitchConnections = Gauge "quietwire_switch_connections" []
        "Tracked connections.";
    SwitchHalfOpenConnections = Gauge "quietwire_switch_half_open_connections" []
        "Half-open connections among them.";
    SwitchCreatedConnectionsTotal = Counter "quietwire_switch_created_connections_total" []
        "New tracked connections.";
    SwitchReplacedConnectionsTotal = Counter "quietwire_switch_replaced_connections_total" ["reason"]
        "Tracked connections replaced by new ones, by reason: `table_full` (also a full zone) or `half_open`.";
    SwitchRefusedConnectionsTotal = Counter "quietwire_switch_refused_connections_total" ["reason"]
        "Refused connections, by reason.";
    SwitchNatMappings = Gauge "quietwire_switch_nat_mappings" ["nat"]
        "Mappings of NAT.";
    SwitchNatHosts = Gauge "quietwire_switch_nat_hosts" ["nat"]
        "Inside hosts with mappings.";
    SwitchNatCreatedMappingsTotal = Counter "quietwire_switch_nat_created_mappings_total" ["nat"]
        "New mappings of NAT.";
    SwitchNatExpiredMappingsTotal = Counter "quietwire_switch_nat_expired_mappings_total" ["nat"]
        "Expired mappings of NAT.";
    SwitchNatLostEventsTotal = Counter "quietwire_switch_nat_lost_events_total" ["nat"]
        "Events of NAT that are not in the log.";
    SwitchNatPacketsTotal = Counter "quietwire_switch_nat_packets_total" ["nat", "direction"]
        "Packets translated by NAT.";
    SwitchNatRefusedPacketsTotal = Counter "quietwire_switch_nat_refused_packets_total" ["nat", "reason"]
        "Packets that NAT did not translate, by reason.";
    SwitchReplicationPeers = Gauge "quietwire_switch_replication_peers" []
        "Standbys that have all connections, or 1 if this standby has them.";
    SwitchReplicationSettingsDiffer = Gauge "quietwire_switch_replication_settings_differ" []
        "1 if settings of this standby differ from those of the active switch, so that it gets no connections.";
    SwitchReplicationSentTotal = Counter "quietwire_switch_replication_sent_total" []
        "Connections and mappings sent to standbys, and their ends.";
    SwitchReplicationLostTotal = Counter "quietwire_switch_replication_lost_total" []
        "Changes lost because there were too many, and new tables: standbys got all connections again.";
    SwitchReplicationPassesTotal = Counter "quietwire_switch_replication_passes_total" []
        "Times that standbys got all connections.";
    SwitchReplicationReceivedTotal = Counter "quietwire_switch_replication_received_total" ["result"]
        "Connections and mappings of the active switch, by result.";
    SwitchLoadBalancerConnectionsTotal = Counter "quietwire_switch_load_balancer_connections_total" ["load_balancer"]
        "New connections of load balancers.";
    SwitchBackendConnections = Gauge "quietwire_switch_backend_connections" ["load_balancer", "backend"]
        "Connections of a backend.";
    SwitchBackendReceivePacketsTotal = Counter "quietwire_switch_backend_receive_packets_total" ["load_balancer", "backend"]
        "Packets to a backend.";
    SwitchBackendTransmitPacketsTotal = Counter "quietwire_switch_backend_transmit_packets_total" ["load_balancer", "backend"]
        "Packets from a backend.";
    PartitionChecks = Gauge "quietwire_partition_checks" ["check", "verdict"]
        "Checks by verdict: `pass`, `fail` or `unknown`.";
    PartitionInterruptsTotal = Counter "quietwire_partition_interrupts_total" ["cpu", "kind", "what"]
        "Interrupts on isolated CPUs.";
    PartitionSoftirqsTotal = Counter "quietwire_partition_softirqs_total" ["cpu", "kind", "what"]
        "Softirqs on isolated CPUs.";
    PartitionForwardingVoluntarySwitchesTotal = Counter "quietwire_partition_forwarding_voluntary_switches_total"
        ["data_plane", "thread", "tid", "cpu"]
        "Voluntary context switches of forwarding threads.";
    PartitionForwardingInvoluntarySwitchesTotal = Counter "quietwire_partition_forwarding_involuntary_switches_total"
        ["data_plane", "thread", "tid", "cpu"]
        "Involuntary context switches of forwarding threads.";
    PartitionForwardingMigrationsTotal = Counter "quietwire_partition_forwarding_migrations_total" ["data_plane", "thread", "tid", "cpu"]
        "Migrations of forwarding threads to another CPU.";
    PartitionVerifyCpuSecondsTotal = Counter "quietwire_partition_verify_cpu_seconds_total" []
        "CPU time used for verification.";
    PartitionVerifyTimestampSeconds = Gauge "quietwire_partition_verify_timestamp_seconds" []
        "Time of the last sample, seconds since 1970.";
    StudyStoresNotListed = Gauge "quietwire_study_stores_not_listed" []
        "Stores beyond the first 1,000 by name, which have no metrics.";
    StudyInfo = Gauge "quietwire_study_info" ["store", "study", "state"]
        "1 for each store; its state is `finished`, `interrupted`, `failed` or `unfinished`.";
    StudyFinishedSteps = Gauge "quietwire_study_finished_steps" ["store"]
        "Finished steps of all rounds.";
    StudyPlannedSteps = Gauge "quietwire_study_planned_steps" ["store"]
        "Steps of all rounds.";
    StudyTrialsTotal = Counter "quietwire_study_trials_total" ["store"]
        "Trials in the store, valid or not.";
    StudyInvalidTrialsTotal = Counter "quietwire_study_invalid_trials_total" ["store"]
        "Trials in the store that are invalid because the tester failed.";
    StudyLatestTrialTimestampSeconds = Gauge "quietwire_study_latest_trial_timestamp_seconds" ["store"]
        "Time of the latest trial, seconds since 1970.";
    StudyLatestOfferedFramesPerSecond = Gauge "quietwire_study_latest_offered_frames_per_second" ["store", "case", "frame_size", "step"]
        "Offered rate of the latest trial, over all directions.";
    StudyLatestLossRatio = Gauge "quietwire_study_latest_loss_ratio" ["store", "case", "frame_size", "step"]
        "Share of frames that were lost in the latest trial, 0 to 1.";
}
