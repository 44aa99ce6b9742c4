// SPDX-License-Identifier: Apache-2.0
//! Structures of the header. Sizes and offsets are asserted here and there, with the same numbers.

use std::ffi::c_void;
use std::mem::offset_of;

/// A packet: `struct qw_packet`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketDescriptor {
    /// First octet of the Ethernet header.
    pub data: *const c_void,
    /// Octets at `data`: at least the headers.
    pub data_length: u32,
    /// Octets of the frame without FCS, at least `data_length`.
    pub frame_length: u32,
    /// Zone of the tracker.
    pub zone: u16,
    /// 0.
    pub reserved: [u16; 3],
}

impl PacketDescriptor {
    /// A packet without octets.
    pub const EMPTY: Self = Self {
        data: std::ptr::null(),
        data_length: 0,
        frame_length: 0,
        zone: 0,
        reserved: [0; 3],
    };
}

/// A rule: `struct qw_rule`. Only the fields that `fields` names are compared.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RuleDescriptor {
    /// Compared fields: a bit for each ([`fields`]).
    pub fields: u32,
    /// `enum qw_action`.
    pub action: u8,
    /// States of connections: bit N is state N of `enum qw_ct_state`.
    pub ct_states: u8,
    /// IP protocol.
    pub protocol: u8,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// TCP flags that are set.
    pub tcp_flags: u8,
    /// TCP flags that are compared.
    pub tcp_flags_mask: u8,
    /// Type of ICMP or ICMPv6.
    pub icmp_type: u8,
    /// Code of ICMP or ICMPv6.
    pub icmp_code: u8,
    /// EtherType behind the tags.
    pub ethertype: u16,
    /// VLAN of the outermost tag.
    pub vlan: u16,
    /// Length of the source prefix, bits.
    pub source_length: u8,
    /// Length of the destination prefix, bits.
    pub destination_length: u8,
    /// 1 if the addresses are of IPv6, 0 if they are of IPv4.
    pub is_ipv6: u8,
    /// 0.
    pub reserved: u8,
    /// First source port.
    pub source_port_first: u16,
    /// Last source port.
    pub source_port_last: u16,
    /// First destination port.
    pub destination_port_first: u16,
    /// Last destination port.
    pub destination_port_last: u16,
    /// Source address in network order. One of IPv4 is in the first four octets.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// 0.
    pub reserved_words: [u32; 1],
}

impl RuleDescriptor {
    /// Accepts every packet.
    pub const ANY: Self = Self {
        fields: 0,
        action: 0,
        ct_states: 0,
        protocol: 0,
        dscp: 0,
        tcp_flags: 0,
        tcp_flags_mask: 0,
        icmp_type: 0,
        icmp_code: 0,
        ethertype: 0,
        vlan: 0,
        source_length: 0,
        destination_length: 0,
        is_ipv6: 0,
        reserved: 0,
        source_port_first: 0,
        source_port_last: 0,
        destination_port_first: 0,
        destination_port_last: 0,
        source: [0; 16],
        destination: [0; 16],
        reserved_words: [0; 1],
    };
}

/// Bits of [`RuleDescriptor::fields`]: `QW_MATCH_…`.
pub mod fields {
    /// EtherType.
    pub const ETHERTYPE: u32 = 1 << 0;
    /// VLAN.
    pub const VLAN: u32 = 1 << 1;
    /// IP protocol.
    pub const PROTOCOL: u32 = 1 << 2;
    /// Source prefix.
    pub const SOURCE: u32 = 1 << 3;
    /// Destination prefix.
    pub const DESTINATION: u32 = 1 << 4;
    /// Source ports.
    pub const SOURCE_PORT: u32 = 1 << 5;
    /// Destination ports.
    pub const DESTINATION_PORT: u32 = 1 << 6;
    /// TCP flags.
    pub const TCP_FLAGS: u32 = 1 << 7;
    /// Type of ICMP.
    pub const ICMP_TYPE: u32 = 1 << 8;
    /// Code of ICMP.
    pub const ICMP_CODE: u32 = 1 << 9;
    /// DSCP.
    pub const DSCP: u32 = 1 << 10;
    /// State of the connection.
    pub const CT_STATE: u32 = 1 << 11;
    /// Mark of the connection, in [`super::CtRuleDescriptor`].
    pub const CT_MARK: u32 = 1 << 12;
    /// Label of the connection, in [`super::CtRuleDescriptor`].
    pub const CT_LABEL: u32 = 1 << 13;
    /// Sets the mark of the connection: `QW_SET_CT_MARK`.
    pub const SET_CT_MARK: u32 = 1 << 14;
    /// Sets the label of the connection: `QW_SET_CT_LABEL`.
    pub const SET_CT_LABEL: u32 = 1 << 15;
    /// Bits of [`super::CtRuleDescriptor`].
    pub const CT_VALUES: u32 = CT_MARK | CT_LABEL | SET_CT_MARK | SET_CT_LABEL;
    /// All bits.
    pub const ALL: u32 = (1 << 16) - 1;
}

/// A label of a connection: `struct qw_label`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LabelRecord {
    /// Bits 0 to 63.
    pub low: u64,
    /// Bits 64 to 127.
    pub high: u64,
}

impl LabelRecord {
    /// Returns the record of a label.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    #[must_use]
    pub const fn new(label: u128) -> Self {
        Self {
            low: label as u64,
            high: (label >> 64) as u64,
        }
    }

    /// Returns the label.
    #[must_use]
    pub const fn value(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

/// Marks and labels of a rule: `struct qw_rule_ct`. Only those that [`RuleDescriptor::fields`] names are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CtRuleDescriptor {
    /// Bits of the mark to match.
    pub mark: u32,
    /// Bits of the mark that are compared.
    pub mark_mask: u32,
    /// New bits of the mark.
    pub set_mark: u32,
    /// Bits of the mark that are set.
    pub set_mark_mask: u32,
    /// Bits of the label to match.
    pub label: LabelRecord,
    /// Bits of the label that are compared.
    pub label_mask: LabelRecord,
    /// New bits of the label.
    pub set_label: LabelRecord,
    /// Bits of the label that are set.
    pub set_label_mask: LabelRecord,
}

/// A verdict: `struct qw_verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VerdictRecord {
    /// `enum qw_action`.
    pub action: u8,
    /// `enum qw_cause`.
    pub cause: u8,
    /// `enum qw_ct_state`.
    pub ct_state: u8,
    /// 1 if the packet has the opposite direction of the first packet of its connection.
    pub is_reply: u8,
    /// Why the packet is invalid: `enum qw_invalid_reason`, or 0.
    pub invalid_reason: u8,
    /// `enum qw_refusal` or `enum qw_malformation`, by the cause, or 0.
    pub reason: u8,
    /// 0.
    pub reserved: u16,
    /// Number of the rule, or `QW_NO_RULE`.
    pub rule: u32,
    /// Mark of the connection.
    pub mark: u32,
    /// Connection, or 0.
    pub connection: u64,
}

impl VerdictRecord {
    /// No verdict: drop.
    pub const DROP: Self = Self {
        action: 1,
        cause: 0,
        ct_state: 4,
        is_reply: 0,
        invalid_reason: 0,
        reason: 0,
        reserved: 0,
        rule: u32::MAX,
        mark: 0,
        connection: 0,
    };
}

/// Connections of a tracker have labels: `QW_TRACKER_LABELS`.
pub const TRACKER_LABELS: u32 = 1;

/// Number of timeouts in [`TrackerSettings`], for states of later versions too.
pub const TIMEOUTS: usize = 32;

/// Settings of a tracker: `struct qw_tracker_settings`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TrackerSettings {
    /// Maximum number of connections.
    pub entries_max: u32,
    /// Number of zones; 0 is one zone.
    pub zones: u32,
    /// Maximum number of connections of a zone; 0 is no limit but that of the table.
    pub zone_limit: u32,
    /// [`TRACKER_LABELS`], or 0.
    pub flags: u32,
    /// Timeouts by `enum qw_connection_state`, seconds; 0 is the default.
    pub timeouts_s: [u32; TIMEOUTS],
}

impl TrackerSettings {
    /// No size.
    pub const EMPTY: Self = Self {
        entries_max: 0,
        zones: 0,
        zone_limit: 0,
        flags: 0,
        timeouts_s: [0; TIMEOUTS],
    };
}

/// A connection: `struct qw_connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectionRecord {
    /// Address that sent the first packet, in network order. One of IPv4 is in the first four octets.
    pub source: [u8; 16],
    /// The other address.
    pub destination: [u8; 16],
    /// Port of the source, or identifier of an ICMP echo.
    pub source_port: u16,
    /// Port of the destination.
    pub destination_port: u16,
    /// Zone.
    pub zone: u16,
    /// IP protocol.
    pub protocol: u8,
    /// `enum qw_connection_state`, or 255.
    pub state: u8,
    /// 1 if the addresses are of IPv6.
    pub is_ipv6: u8,
    /// 1 if both sides have sent packets.
    pub is_replied: u8,
    /// 0.
    pub reserved: u16,
    /// Mark.
    pub mark: u32,
    /// Seconds until it expires without further packets.
    pub expires_in_s: u32,
    /// Packets of each direction, up to 2^32 - 1.
    pub packets: [u32; 2],
    /// 0.
    pub reserved_word: u32,
    /// Octets of IP packets of each direction.
    pub octets: [u64; 2],
}

impl ConnectionRecord {
    /// No connection.
    pub const EMPTY: Self = Self {
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        zone: 0,
        protocol: 0,
        state: 0,
        is_ipv6: 0,
        is_replied: 0,
        reserved: 0,
        mark: 0,
        expires_in_s: 0,
        packets: [0; 2],
        reserved_word: 0,
        octets: [0; 2],
    };
}

/// Counters of a tracker: `struct qw_tracker_counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TrackerCounters {
    /// Connections at present.
    pub connections: u64,
    /// New connections.
    pub created: u64,
    /// Connections that expired.
    pub expired: u64,
    /// Connections dropped early, for the sake of new ones.
    pub dropped_early: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Packets that fit no connection.
    pub invalid: u64,
    /// Memory of the tables, octets.
    pub octets: u64,
}

const _: () = assert!(size_of::<PacketDescriptor>() == 24);
const _: () = assert!(offset_of!(PacketDescriptor, zone) == 16);
const _: () = assert!(size_of::<RuleDescriptor>() == 64);
const _: () = assert!(offset_of!(RuleDescriptor, ethertype) == 12);
const _: () = assert!(offset_of!(RuleDescriptor, source_port_first) == 20);
const _: () = assert!(offset_of!(RuleDescriptor, source) == 28);
const _: () = assert!(size_of::<LabelRecord>() == 16);
const _: () = assert!(offset_of!(LabelRecord, high) == 8);
const _: () = assert!(size_of::<CtRuleDescriptor>() == 80);
const _: () = assert!(offset_of!(CtRuleDescriptor, set_mark) == 8);
const _: () = assert!(offset_of!(CtRuleDescriptor, label) == 16);
const _: () = assert!(offset_of!(CtRuleDescriptor, set_label) == 48);
const _: () = assert!(size_of::<VerdictRecord>() == 24);
const _: () = assert!(offset_of!(VerdictRecord, rule) == 8);
const _: () = assert!(offset_of!(VerdictRecord, connection) == 16);
const _: () = assert!(size_of::<TrackerSettings>() == 144);
const _: () = assert!(offset_of!(TrackerSettings, timeouts_s) == 16);
const _: () = assert!(size_of::<ConnectionRecord>() == 80);
const _: () = assert!(offset_of!(ConnectionRecord, mark) == 44);
const _: () = assert!(offset_of!(ConnectionRecord, octets) == 64);
const _: () = assert!(size_of::<TrackerCounters>() == 56);
