// SPDX-License-Identifier: Apache-2.0
//! States, classes and reasons of the tracker. Counters, JSON and texts are generated from these lists.

use std::str::FromStr;

use crate::named;

named! {
    /// Class of a packet, by its connection: `ct state` of nftables.
    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CtState {
        /// The first packet of a connection, or a further one while only one side has sent packets.
        New = "new", "first packets of a connection";
        /// A packet of a connection whose two sides have both sent packets.
        Established = "established", "of a connection in both directions";
        /// An ICMP error about a packet of a connection, or the first packet of a connection that a helper expects, and further ones while only
        /// one side has sent packets.
        Related = "related", "ICMP error about a connection, or first packets of an expected one";
        /// Does not fit a connection ([`InvalidReason`]).
        Invalid = "invalid", "does not fit a connection";
        /// Not tracked: no IP packet, or a message between neighbours or multicast routers of IPv6.
        Untracked = "untracked", "not tracked";
    }
}

impl FromStr for CtState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let state = Self::ALL.into_iter().find(|state| state.name() == text);
        state.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not a state of connections (use {names})")
        })
    }
}

named! {
    /// Reader of the data of a protocol whose connections announce others.
    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Helper {
        /// FTP (RFC 959, RFC 2428), TCP port 21.
        Ftp = "ftp";
        /// TFTP (RFC 1350), UDP port 69.
        Tftp = "tftp";
    }
}

named! {
    /// Reason for [`CtState::Invalid`].
    pub enum InvalidReason {
        /// Headers are truncated, or their lengths are inconsistent.
        Malformed = "malformed", "malformed headers";
        /// A later fragment of a datagram whose first one is not known.
        Fragment = "fragment", "fragment without transport header";
        /// Source and destination have the same address and port.
        SameEndpoint = "same_endpoint", "source equals destination";
        /// Combination of TCP flags that no host sends (RFC 9293, section 3.10.7).
        Flags = "flags", "combination of TCP flags";
        /// No connection, and the packet cannot be the first of one.
        NoConnection = "no_connection", "no such connection";
        /// Not possible in the state of the connection, such as data before the handshake.
        State = "state", "not possible in this state";
        /// TCP sequence number outside of the window.
        Sequence = "sequence", "sequence number outside of the window";
        /// TCP acknowledgement outside of the sent data.
        Acknowledgement = "acknowledgement", "acknowledgement outside of the sent data";
        /// TCP SYN within a connection (RFC 5961, section 4).
        Syn = "syn", "SYN within a connection";
        /// ICMP message other than an echo or an error.
        IcmpType = "icmp_type", "ICMP type";
        /// ICMP error about a packet that the sender of the error's destination cannot have sent.
        Unrelated = "unrelated", "ICMP error about no packet of a connection";
    }
}

named! {
    /// State of a connection. TCP states are those of the kernel's connection tracking (`nf_conntrack_tcp.h`).
    pub enum State {
        /// TCP: one side has sent a SYN.
        TcpSynSent = "tcp_syn_sent";
        /// TCP: both sides have sent a SYN, no side has acknowledged (RFC 9293, section 3.5, simultaneous open).
        TcpSynSent2 = "tcp_syn_sent2";
        /// TCP: one side has acknowledged the SYN of the other.
        TcpSynRecv = "tcp_syn_recv";
        /// TCP: both sides have acknowledged.
        TcpEstablished = "tcp_established";
        /// TCP: one side has sent a FIN.
        TcpFinWait = "tcp_fin_wait";
        /// TCP: one side has sent a FIN, and the other has acknowledged it.
        TcpCloseWait = "tcp_close_wait";
        /// TCP: both sides have sent a FIN.
        TcpLastAck = "tcp_last_ack";
        /// TCP: both sides have sent a FIN and acknowledged that of the other.
        TcpTimeWait = "tcp_time_wait";
        /// TCP: reset.
        TcpClose = "tcp_close";
        /// UDP: only one side has sent datagrams.
        UdpUnreplied = "udp_unreplied";
        /// UDP: both sides have sent datagrams.
        UdpReplied = "udp_replied";
        /// ICMP echo: no reply yet.
        IcmpUnreplied = "icmp_unreplied";
        /// ICMP echo with replies.
        IcmpReplied = "icmp_replied";
        /// Another IP protocol: only one side has sent packets.
        OtherUnreplied = "other_unreplied";
        /// Another IP protocol: both sides have sent packets.
        OtherReplied = "other_replied";
    }
}

named! {
    /// Reason for refusing a new connection.
    pub enum Refusal {
        /// The table is full, and no entry of it may be dropped early.
        TableFull = "table_full", "connection table full";
        /// The zone is at its limit, and no entry of it may be dropped early.
        ZoneFull = "zone_full", "zone at its limit";
        /// The zone does not exist.
        NoZone = "no_zone", "no such zone";
        /// An earlier packet of the burst has created the connection, and this one does not fit it.
        Conflict = "conflict", "does not fit an earlier packet of the burst";
        /// The source address has begun as many connections as it may.
        SourceFull = "source_full", "source at its limit";
        /// The source address has begun as many half-open connections as it may.
        SourceHalfOpen = "source_half_open", "source at its limit of half-open connections";
    }
}

named! {
    /// Side that sent a packet.
    pub enum Direction {
        /// The side that began the connection.
        Original = "original";
        /// The other side.
        Reply = "reply";
    }
}

/// Class of a state in the order of early drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Embryonic: only one side has sent packets, or the handshake is not complete. Dropped first.
    Embryonic,
    /// Closed: only late packets are expected. Dropped next.
    Closed,
    /// Never dropped early.
    Never,
}

impl State {
    /// Returns true for half-open connections: only one side has sent packets, or the handshake of TCP is not complete.
    #[must_use]
    #[inline]
    pub const fn is_half_open(self) -> bool {
        matches!(self.eviction(), Eviction::Embryonic)
    }

    /// Returns the class of early drops.
    #[must_use]
    #[inline]
    pub const fn eviction(self) -> Eviction {
        match self {
            Self::TcpSynSent
            | Self::TcpSynSent2
            | Self::TcpSynRecv
            | Self::UdpUnreplied
            | Self::IcmpUnreplied
            | Self::OtherUnreplied => Eviction::Embryonic,
            Self::TcpTimeWait | Self::TcpClose => Eviction::Closed,
            Self::TcpEstablished
            | Self::TcpFinWait
            | Self::TcpCloseWait
            | Self::TcpLastAck
            | Self::UdpReplied
            | Self::IcmpReplied
            | Self::OtherReplied => Eviction::Never,
        }
    }
}
