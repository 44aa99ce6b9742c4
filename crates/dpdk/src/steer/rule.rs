// SPDX-License-Identifier: Apache-2.0
//! Steering rules.

use std::net::IpAddr;

/// Maximum number of rules of a port.
pub const STEER_RULES_MAX: usize = 128;

/// Conditions on a frame. Fields that are not set match every frame. Only the first fragment has ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerMatch {
    /// Source MAC address.
    pub source_mac: Option<[u8; 6]>,
    /// Destination MAC address.
    pub destination_mac: Option<[u8; 6]>,
    /// VLAN of the outermost tag (IEEE 802.1Q, table 9-1: customer and service tags).
    pub vlan: Option<u16>,
    /// EtherType behind at most two tags.
    pub ethertype: Option<u16>,
    /// IP protocol, behind IPv6 extension headers too.
    pub protocol: Option<u8>,
    /// Source address and prefix length. The bits behind the prefix are ignored.
    pub source: Option<(IpAddr, u8)>,
    /// Destination address and prefix length.
    pub destination: Option<(IpAddr, u8)>,
    /// First and last source port of TCP, UDP, DCCP, SCTP or UDP-Lite.
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port.
    pub destination_ports: Option<(u16, u16)>,
}

/// Destination of steered frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerTarget {
    /// The port of the switch.
    Switch,
    /// The network stack of the kernel.
    Kernel,
}

/// Destination to which the network card delivers the frames of a rule, before any program receives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardTarget {
    /// A receive queue of the interface. The target of the rule then decides.
    Queue(u16),
    /// A virtual function of the interface. Frames that the card does not deliver there have the target of the rule.
    Function(u16),
    /// None: the card drops the frames. Those that it does not drop have the target of the rule.
    Drop,
}

/// A steering rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerRule {
    /// Frames to match.
    pub frames: SteerMatch,
    /// Their destination.
    pub target: SteerTarget,
    /// Queue or function that the card selects. Default: the card delivers the frames as it does without rules.
    pub card: Option<CardTarget>,
}
