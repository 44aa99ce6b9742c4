// SPDX-License-Identifier: Apache-2.0
//! Exported functions with valid and with wrong arguments, and bursts compared with the tables and with a plain search of the rules.

mod labels;

use proptest::prelude::*;
use quietwire_tables::connections::{
    CtState, ENTRIES_MAX, Packet, Settings, TIMEOUT_MAX_S, Tracked, Tracker, ZONES_MAX,
};

use super::*;
use crate::classifier::CONDITIONS_MAX;
use crate::codes::CT_STATES;
use crate::layout::{TRACKER_LABELS, fields};

const OK: c_int = Status::Ok as c_int;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A classifier and a tracker, which are destroyed with the value.
struct Objects {
    classifier: u64,
    tracker: u64,
}

impl Objects {
    fn new(rules: &[RuleDescriptor], default: u32, settings: &TrackerSettings) -> Self {
        let (mut classifier, mut tracker, mut wrong) = (0, 0, 0);
        // SAFETY: all pointers are of values, and the rules are as many.
        let made = unsafe {
            qw_classifier_create(
                rules.as_ptr(),
                rules.len(),
                default,
                0,
                &raw mut classifier,
                &raw mut wrong,
            )
        };
        assert_eq!((made, wrong), (OK, usize::MAX), "{rules:?}");
        // SAFETY: all pointers are of values.
        let made = unsafe { qw_tracker_create(&raw const *settings, &raw mut tracker) };
        assert_eq!(made, OK);
        Self {
            classifier,
            tracker,
        }
    }

    fn filter(&self, frames: &[(Vec<u8>, u16)], now_s: u32) -> Vec<VerdictRecord> {
        let packets: Vec<PacketDescriptor> = frames
            .iter()
            .map(|(octets, zone)| PacketDescriptor {
                zone: *zone,
                ..packet(octets)
            })
            .collect();
        let mut verdicts = vec![VerdictRecord::DROP; packets.len()];
        // SAFETY: there is a verdict for each packet, and the octets of all packets live on.
        let status = unsafe {
            qw_filter(
                self.classifier,
                self.tracker,
                packets.as_ptr(),
                packets.len(),
                now_s,
                verdicts.as_mut_ptr(),
            )
        };
        assert_eq!(status, OK);
        verdicts
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        assert_eq!(qw_classifier_destroy(self.classifier), OK);
        assert_eq!(qw_tracker_destroy(self.tracker), OK);
    }
}

fn settings(entries_max: u32) -> TrackerSettings {
    TrackerSettings {
        entries_max,
        ..TrackerSettings::EMPTY
    }
}

fn packet(octets: &[u8]) -> PacketDescriptor {
    let length = u32::try_from(octets.len()).unwrap();
    PacketDescriptor {
        data: octets.as_ptr().cast(),
        data_length: length,
        frame_length: length,
        ..PacketDescriptor::EMPTY
    }
}

/// A frame between two of a few hosts.
#[derive(Clone, Copy, Debug)]
struct Sample {
    vlan: Option<u16>,
    is_ipv6: bool,
    protocol: u8,
    hosts: (u8, u8),
    ports: (u16, u16),
    flags: u8,
    dscp: u8,
    zone: u16,
}

impl Sample {
    fn transport(&self) -> Vec<u8> {
        let mut octets = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        if self.protocol == UDP {
            octets.extend([0, 8, 0, 0]);
            return octets;
        }
        let sequence: u32 = if self.flags & SYN == 0 { 1001 } else { 1000 };
        octets.extend(sequence.to_be_bytes());
        octets.extend(1001u32.to_be_bytes());
        octets.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        octets
    }

    fn frame(&self) -> Vec<u8> {
        let mut octets = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(vlan) = self.vlan {
            octets.extend([0x81, 0]);
            octets.extend(vlan.to_be_bytes());
        }
        let transport = self.transport();
        let length = u8::try_from(transport.len()).unwrap();
        let class = self.dscp << 2;
        let (from, to) = self.hosts;
        if self.is_ipv6 {
            octets.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0, 0, length]);
            octets.extend([self.protocol, 64]);
            for host in [from, to] {
                octets.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
        } else {
            octets.extend([8, 0, 0x45, class, 0, 20 + length, 0, 0, 0, 0, 64]);
            octets.extend([self.protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        }
        octets.extend(transport);
        octets
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let flags = prop_oneof![
        Just(SYN),
        Just(SYN | ACK),
        Just(ACK),
        Just(ACK | 1),
        Just(4u8)
    ];
    let ports = (1..3u16, 1..3u16);
    let hosts = (0..4u8, 0..4u8);
    let rest = (any::<bool>(), any::<bool>(), 0..3u8, 0..2u16);
    (prop::option::of(1..3u16), hosts, ports, flags, rest).prop_map(
        |(vlan, hosts, ports, flags, (is_ipv6, is_tcp, dscp, zone))| Sample {
            vlan,
            is_ipv6,
            protocol: if is_tcp { TCP } else { UDP },
            hosts,
            ports,
            flags,
            dscp,
            zone,
        },
    )
}

/// Returns an address of a host and a prefix length that leaves this number of bits open.
fn prefix(host: u8, open: u8, is_ipv6: bool) -> ([u8; 16], u8) {
    if is_ipv6 {
        let address = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
        return (address, 128 - open);
    }
    let address = [10, 0, 0, host, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    (address, 32 - open)
}

fn rule() -> impl Strategy<Value = RuleDescriptor> {
    let some = fields::VLAN
        | fields::PROTOCOL
        | fields::SOURCE
        | fields::DESTINATION
        | fields::SOURCE_PORT
        | fields::DESTINATION_PORT
        | fields::TCP_FLAGS
        | fields::DSCP
        | fields::CT_STATE;
    let numbers = (any::<u32>(), any::<u32>(), 0..3u8, 1..32u8);
    let hosts = (0..4u8, 0..3u8, 0..4u8, 0..3u8);
    let ports = (1..3u16, 0..2u16, 1..3u16, 0..2u16);
    let rest = (1..3u16, 0..3u8, any::<bool>(), any::<bool>());
    (numbers, hosts, ports, rest).prop_map(move |(numbers, hosts, ports, rest)| {
        let (one, other, action, ct_states) = numbers;
        let (vlan, dscp, is_ipv6, is_tcp) = rest;
        // Few fields each, so that rules match now and then.
        let mut compared = one & other & some;
        let needs_protocol = fields::SOURCE_PORT | fields::DESTINATION_PORT | fields::TCP_FLAGS;
        if compared & needs_protocol != 0 {
            compared |= fields::PROTOCOL;
        }
        let is_tcp = is_tcp || compared & fields::TCP_FLAGS != 0;
        let (source, source_length) = prefix(hosts.0, hosts.1, is_ipv6);
        let (destination, destination_length) = prefix(hosts.2, hosts.3, is_ipv6);
        RuleDescriptor {
            fields: compared,
            action,
            ct_states,
            protocol: if is_tcp { TCP } else { UDP },
            dscp,
            tcp_flags: SYN,
            tcp_flags_mask: SYN | ACK,
            vlan,
            source_length,
            destination_length,
            is_ipv6: u8::from(is_ipv6),
            source_port_first: ports.0,
            source_port_last: ports.0 + ports.1,
            destination_port_first: ports.2,
            destination_port_last: ports.2 + ports.3,
            source,
            destination,
            ..RuleDescriptor::ANY
        }
    })
}

/// Returns the number of a state in the header.
fn number_of(state: CtState) -> u8 {
    let place = CT_STATES.iter().position(|name| *name == state.name());
    u8::try_from(place.unwrap()).unwrap()
}

/// Compares a packet with a rule, field by field.
fn matches(rule: &RuleDescriptor, sample: &Sample, state: CtState) -> bool {
    let is_open = |field: u32| rule.fields & field == 0;
    let is_within = |address: &[u8; 16], length: u8, host: u8| {
        let (last, width) = if rule.is_ipv6 == 1 {
            (address[15], 128)
        } else {
            (address[3], 32)
        };
        let open = width - length;
        sample.is_ipv6 == (rule.is_ipv6 == 1) && last >> open == host >> open
    };
    let is_tcp = sample.protocol == TCP;
    let ports = sample.ports;
    (is_open(fields::VLAN) || sample.vlan == Some(rule.vlan))
        && (is_open(fields::PROTOCOL) || sample.protocol == rule.protocol)
        && (is_open(fields::SOURCE) || is_within(&rule.source, rule.source_length, sample.hosts.0))
        && (is_open(fields::DESTINATION)
            || is_within(&rule.destination, rule.destination_length, sample.hosts.1))
        && (is_open(fields::SOURCE_PORT)
            || (rule.source_port_first..=rule.source_port_last).contains(&ports.0))
        && (is_open(fields::DESTINATION_PORT)
            || (rule.destination_port_first..=rule.destination_port_last).contains(&ports.1))
        && (is_open(fields::TCP_FLAGS)
            || is_tcp && sample.flags & rule.tcp_flags_mask == rule.tcp_flags)
        && (is_open(fields::DSCP) || sample.dscp == rule.dscp)
        && (is_open(fields::CT_STATE) || rule.ct_states >> number_of(state) & 1 == 1)
}

proptest! {
    #[test]
    fn bursts_get_the_verdicts_of_the_tables_and_of_a_plain_search(
        rules in prop::collection::vec(rule(), 0..12),
        default in 0..3u8,
        bursts in prop::collection::vec(
            (prop::collection::vec(sample(), 0..20), 0..200u32),
            1..6,
        ),
    ) {
        // The second zone has less space, so that connections are refused too.
        let two_zones = TrackerSettings { zones: 2, zone_limit: 3, ..settings(5) };
        let objects = Objects::new(&rules, u32::from(default), &two_zones);
        let mut plain = Settings::of_size(5);
        plain.zone_limits = vec![3; 2];
        let mut tracker = Tracker::new(&plain).unwrap();
        let mut now_s = 0;
        for (samples, wait) in bursts {
            now_s += wait;
            tracker.expire(now_s, 64);
            // SAFETY: no pointer leads anywhere.
            let status = unsafe { qw_tracker_expire(objects.tracker, now_s, 64, ptr::null_mut()) };
            prop_assert_eq!(status, OK);
            let frames: Vec<(Vec<u8>, u16)> =
                samples.iter().map(|one| (one.frame(), one.zone)).collect();
            let verdicts = objects.filter(&frames, now_s);
            let packets: Vec<Packet> = frames
                .iter()
                .map(|(octets, zone)| Packet::of_frame(octets, octets.len(), *zone))
                .collect();
            let mut tracked = vec![Tracked::UNTRACKED; packets.len()];
            tracker.track(&packets, now_s, &mut tracked);
            for (((sample, packet), tracked), verdict) in
                samples.iter().zip(&packets).zip(&tracked).zip(&verdicts)
            {
                let found = rules.iter().position(|one| matches(one, sample, tracked.state));
                let action = found.map_or(default, |number| rules[number].action);
                let is_first = tracked.state == CtState::New && tracked.connection.is_none();
                let made = (is_first && action == 0).then(|| tracker.commit(packet, now_s));
                let connection = match made {
                    Some(Ok(connection)) => Some(connection),
                    Some(Err(_)) => None,
                    None => tracked.connection,
                };
                let number = connection.map_or(0, |one| 1 << 63 | one.to_bits());
                prop_assert_eq!(verdict.ct_state, number_of(tracked.state));
                prop_assert_eq!(verdict.connection, number);
                prop_assert_eq!(verdict.invalid_reason != 0, tracked.reason.is_some());
                if matches!(made, Some(Err(_))) {
                    prop_assert_eq!((verdict.action, verdict.cause), (1, 5));
                    prop_assert_ne!(verdict.reason, 0);
                } else {
                    let number = found.map_or(u32::MAX, |number| u32::try_from(number).unwrap());
                    prop_assert_eq!((verdict.action, verdict.rule), (action, number));
                    prop_assert_eq!(verdict.cause, if found.is_some() { 1 } else { 2 });
                }
            }
            let mut counters = TrackerCounters::default();
            // SAFETY: the pointer is of a value.
            let status = unsafe { qw_tracker_counters(objects.tracker, &raw mut counters) };
            prop_assert_eq!(status, OK);
            prop_assert_eq!(counters.connections, tracker.len() as u64);
            prop_assert_eq!(counters.created, tracker.counters().created);
        }
    }
}

#[test]
fn wrong_pointers_and_sizes_are_errors() {
    let objects = Objects::new(&[], 0, &settings(4));
    let (classifier, tracker) = (objects.classifier, objects.tracker);
    let packets = [PacketDescriptor::EMPTY; BURST_MAX + 1];
    let mut verdicts = [VerdictRecord::DROP; BURST_MAX + 1];
    let to = verdicts.as_mut_ptr();
    let filter = |packets: *const PacketDescriptor, count: usize, to: *mut VerdictRecord| {
        // SAFETY: a pointer that is neither null nor misaligned leads to `BURST_MAX` + 1 values.
        unsafe { qw_filter(classifier, tracker, packets, count, 0, to) }
    };
    assert_eq!(filter(packets.as_ptr(), BURST_MAX, to), OK);
    assert_eq!(filter(ptr::null(), 0, ptr::null_mut()), OK);
    let (pointer, size) = (Status::Pointer as c_int, Status::Size as c_int);
    assert_eq!(filter(packets.as_ptr(), BURST_MAX + 1, to), size);
    assert_eq!(filter(packets.as_ptr(), usize::MAX, to), size);
    assert_eq!(filter(ptr::null(), 1, to), pointer);
    assert_eq!(filter(packets.as_ptr(), 1, ptr::null_mut()), pointer);
    let askew = packets.as_ptr().wrapping_byte_add(1);
    assert_eq!(filter(askew, 1, to), pointer);
    assert_eq!(
        filter(packets.as_ptr(), 1, to.wrapping_byte_add(4)),
        pointer
    );
    // SAFETY: null is refused, and so are too many rules before one is read.
    let (without_rules, without_handle, too_many, without_settings) = unsafe {
        let mut handle = 0;
        let rule = RuleDescriptor::ANY;
        (
            qw_classifier_create(ptr::null(), 1, 0, 0, &raw mut handle, ptr::null_mut()),
            qw_classifier_create(&raw const rule, 1, 0, 0, ptr::null_mut(), ptr::null_mut()),
            qw_classifier_create(
                &raw const rule,
                RULES_MAX + 1,
                0,
                0,
                &raw mut handle,
                ptr::null_mut(),
            ),
            qw_tracker_create(ptr::null(), &raw mut handle),
        )
    };
    assert_eq!(
        (without_rules, without_handle, too_many, without_settings),
        (pointer, pointer, size, pointer)
    );
}

#[test]
fn packets_and_times_without_sense_are_errors_and_change_nothing() {
    let objects = Objects::new(&[], 0, &settings(4));
    let octets = [0; 60];
    let good = packet(&octets);
    let filter = |packet: PacketDescriptor, now_s: u32| {
        let mut verdict = VerdictRecord {
            rule: 77,
            ..VerdictRecord::DROP
        };
        // SAFETY: both pointers are of values, and the octets live on.
        let status = unsafe {
            qw_filter(
                objects.classifier,
                objects.tracker,
                &raw const packet,
                1,
                now_s,
                &raw mut verdict,
            )
        };
        (status, verdict.rule)
    };
    assert_eq!(filter(good, SECONDS_MAX), (OK, u32::MAX));
    let argument = (Status::Argument as c_int, 77);
    assert_eq!(filter(good, SECONDS_MAX + 1), argument);
    let longer = PacketDescriptor {
        data_length: 61,
        ..good
    };
    assert_eq!(filter(longer, 0), argument);
    let reserved = PacketDescriptor {
        reserved: [0, 0, 1],
        ..good
    };
    assert_eq!(filter(reserved, 0), argument);
    let nowhere = PacketDescriptor {
        data: ptr::null(),
        ..good
    };
    assert_eq!(filter(nowhere, 0), (Status::Pointer as c_int, 77));
}

#[test]
fn a_wrong_rule_is_named() {
    let tcp = RuleDescriptor {
        fields: fields::PROTOCOL,
        protocol: TCP,
        ..RuleDescriptor::ANY
    };
    let wrong = [
        RuleDescriptor { action: 3, ..tcp },
        RuleDescriptor {
            fields: 1 << 16,
            ..tcp
        },
        // Marks require `qw_classifier_create_ct`.
        RuleDescriptor {
            fields: fields::CT_MARK,
            ..tcp
        },
        RuleDescriptor { reserved: 1, ..tcp },
        // Ports and flags without a protocol, a prefix that is too long, states without a state.
        RuleDescriptor {
            fields: fields::SOURCE_PORT,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::TCP_FLAGS,
            tcp_flags_mask: SYN,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::SOURCE,
            source_length: 33,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::CT_STATE,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::CT_STATE,
            ct_states: 1 << 5,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::VLAN,
            vlan: 4095,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::DSCP,
            dscp: 64,
            ..tcp
        },
        RuleDescriptor {
            fields: fields::PROTOCOL | fields::DESTINATION_PORT,
            destination_port_first: 2,
            destination_port_last: 1,
            ..tcp
        },
    ];
    for one in wrong {
        let rules = [tcp, one, one];
        let (mut handle, mut number) = (5, 0);
        // SAFETY: all pointers are of values, and there are three rules.
        let status = unsafe {
            qw_classifier_create(rules.as_ptr(), 3, 0, 0, &raw mut handle, &raw mut number)
        };
        let expected = (Status::Argument as c_int, 1, 5);
        assert_eq!((status, number, handle), expected, "{one:?}");
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let mut timeout = settings(1);
    timeout.timeouts_s[0] = 2_592_001;
    let mut state = settings(1);
    state.timeouts_s[31] = 1;
    let zones = TrackerSettings {
        zones: 1025,
        ..settings(1)
    };
    let flags = TrackerSettings {
        flags: TRACKER_LABELS | 2,
        ..settings(1)
    };
    for wrong in [
        settings(0),
        settings(u32::MAX),
        timeout,
        state,
        zones,
        flags,
    ] {
        let mut handle = 5;
        // SAFETY: both pointers are of values.
        let status = unsafe { qw_tracker_create(&raw const wrong, &raw mut handle) };
        assert_eq!(
            (status, handle),
            (Status::Argument as c_int, 5),
            "{wrong:?}"
        );
    }
}

#[test]
fn limits_of_the_header_are_those_of_the_library() {
    const HEADER: &str = include_str!("../../include/quietwire.h");
    for (name, value) in [
        ("QW_ABI_VERSION", u64::from(ABI_VERSION)),
        ("QW_BURST_MAX", BURST_MAX as u64),
        ("QW_RULES_MAX", RULES_MAX as u64),
        ("QW_HANDLES_MAX", crate::handle::HANDLES_MAX as u64),
        ("QW_ENTRIES_MAX", u64::from(ENTRIES_MAX)),
        ("QW_ZONES_MAX", u64::from(ZONES_MAX)),
        ("QW_TIMEOUT_MAX", u64::from(TIMEOUT_MAX_S)),
        ("QW_PAGE_MAX", PAGE_MAX as u64),
        ("QW_CONDITIONS_MAX", CONDITIONS_MAX as u64),
    ] {
        let line = format!("#define {name} {value}");
        assert!(HEADER.lines().any(|one| one == line), "no '{line}'");
    }
    let seconds = format!("#define QW_SECONDS_MAX {SECONDS_MAX}u");
    assert!(HEADER.lines().any(|one| one == seconds), "no '{seconds}'");
    let name = format!("libquietwire.so.{ABI_VERSION}\"");
    assert!(include_str!("../../build.rs").contains(&name));
    assert_eq!(qw_abi_version(), ABI_VERSION);
}

#[test]
fn a_panic_becomes_a_status() {
    assert_eq!(guarded(|| panic!("planted")), Status::Internal as c_int);
}

#[test]
fn own_rules_of_a_program_decide_which_connections_are_created() {
    let objects = Objects::new(&[], 0, &settings(4));
    let datagram = |port| {
        let sample = Sample {
            vlan: None,
            is_ipv6: false,
            protocol: UDP,
            hosts: (1, 2),
            ports: (port, 53),
            flags: 0,
            dscp: 0,
            zone: 0,
        };
        sample.frame()
    };
    let frames = [datagram(1), datagram(2)];
    let packets = [packet(&frames[0]), packet(&frames[1])];
    let mut verdicts = [VerdictRecord::DROP; 2];
    let to = verdicts.as_mut_ptr();
    // SAFETY: there are two packets and two verdicts, and the octets live on.
    unsafe {
        assert_eq!(qw_track(objects.tracker, packets.as_ptr(), 2, 0, to), OK);
        (*to).action = 1;
        assert_eq!(qw_commit(objects.tracker, packets.as_ptr(), 2, 0, to), OK);
    }
    assert_eq!((verdicts[0].connection, verdicts[1].action), (0, 0));
    let connection = verdicts[1].connection;
    assert_ne!(connection, 0);
    let mut record = ConnectionRecord::EMPTY;
    assert_eq!(qw_connection_set_mark(objects.tracker, connection, 9), OK);
    // SAFETY: the pointer is of a value.
    let status = unsafe { qw_connection_get(objects.tracker, connection, &raw mut record) };
    assert_eq!((status, record.mark), (OK, 9));
    assert_eq!((record.source_port, record.destination_port), (2, 53));
    assert_eq!(record.source[..4], [10, 0, 0, 1]);
    for wrong in [0, connection + 1, connection & !(1 << 63), u64::MAX] {
        let status = qw_connection_set_mark(objects.tracker, wrong, 9);
        assert_eq!(status, Status::Handle as c_int, "{wrong:#x}");
    }
}

#[test]
fn shared_rules_count_together() {
    let rule = RuleDescriptor {
        fields: fields::PROTOCOL,
        protocol: UDP,
        ..RuleDescriptor::ANY
    };
    let objects = Objects::new(&[rule], 1, &settings(1));
    let sample = Sample {
        vlan: None,
        is_ipv6: false,
        protocol: UDP,
        hosts: (1, 2),
        ports: (1, 2),
        flags: 0,
        dscp: 0,
        zone: 0,
    };
    let frame = sample.frame();
    let mut other = 0;
    // SAFETY: the pointer is of a value.
    let shared = unsafe { qw_classifier_share(objects.classifier, &raw mut other) };
    assert_eq!(shared, OK);
    assert_ne!(other, objects.classifier);
    for handle in [objects.classifier, other] {
        let one = packet(&frame);
        let mut verdict = VerdictRecord::DROP;
        // SAFETY: both pointers are of values, and the octets live on.
        let status = unsafe { qw_classify(handle, &raw const one, 1, &raw mut verdict) };
        assert_eq!((status, verdict.action, verdict.rule), (OK, 0, 0));
        assert_eq!(verdict.ct_state, number_of(CtState::Untracked));
    }
    let (mut counts, mut rules, mut others) = ([7; 2], 0, [7; 2]);
    // SAFETY: all pointers are of values, and there is space for two counts.
    let status = unsafe {
        qw_classifier_counts(
            other,
            counts.as_mut_ptr(),
            2,
            &raw mut rules,
            &raw mut others,
        )
    };
    assert_eq!((status, counts, rules, others), (OK, [2, 7], 1, [0, 0]));
    assert_eq!(qw_classifier_destroy(other), OK);
    assert_eq!(qw_classifier_destroy(other), Status::Handle as c_int);
}
