// SPDX-License-Identifier: Apache-2.0
//! Descriptions of conversations (TOML): addresses, rates, and the mix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use quietwire_base::locate::{self, At, FileError, LocatedFault};
use quietwire_packet::MacAddress;
use serde::{Deserialize, Serialize};

use super::expected_nat::{ExpectedNat, PoolRange};
use super::flood::Flood;
use super::fragments::Fragments;
use super::illegal::Illegal;
use super::request::HEAD;
use super::tcp::{STREAM_MAX, WINDOW_MAX};

/// Largest number of conversations that are open at a time.
pub const OPEN_MAX: u32 = 1 << 23;
/// Largest number of addresses of an end.
pub const ADDRESSES_MAX: u32 = 1 << 16;
/// Largest number of entries of a mix.
pub const MIX_MAX: usize = 64;
/// Largest rate of new conversations, per second.
pub const RATE_MAX: f64 = 1e8;
/// Largest maximum segment size: that of frames of 9000 octets over IPv6, without options.
const MSS_MAX: u16 = 8922;
/// Smallest maximum segment size of IPv6 with space for options (RFC 8200, section 5).
const MSS_MIN: u16 = 536;
/// Largest number of requests of a conversation.
const TRANSACTIONS_MAX: u32 = 1 << 20;
/// Longest time, milliseconds: a day.
const TIME_MAX_MS: f64 = 86_400_000.0;

/// `[connections]`: a description of conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all(deserialize = "kebab-case"))]
pub struct Connections {
    /// Ends that the tester takes. Default: both, with two ports.
    pub role: Role,
    /// New conversations per second. Required unless `concurrent` is given, of which it then is the limit while they are opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Conversations to keep open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Conversations that each end has space for, including those in TIME-WAIT.
    pub open_max: u32,
    /// Seed of payloads, sizes, sequence numbers and the order of the mix.
    pub seed: u64,
    /// Maximum segment size, octets of data. Default: 1460, over IPv6 1440.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Receive window, octets.
    pub window: u32,
    /// Retransmissions of a SYN before a connection fails.
    pub syn_retries: u8,
    /// Retransmissions of other segments before a connection fails.
    pub retries: u8,
    /// Smallest retransmission timeout, milliseconds.
    pub rto_min_ms: f64,
    /// Time without progress after which a connection fails, milliseconds.
    pub idle_timeout_ms: f64,
    /// Duration of TIME-WAIT, milliseconds.
    pub time_wait_ms: f64,
    /// Time in which the answer to a datagram must arrive, milliseconds.
    pub answer_timeout_ms: f64,
    /// The client's end.
    pub client: ClientSide,
    /// The server's end.
    pub server: ServerSide,
    /// Translation of the clients' addresses and ports that is expected at the server. Default: translations are reported and not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<ExpectedNat>,
    /// SYNs of other clients beside the conversations. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flood>,
    /// SYNs beside the conversations that the device has to drop. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub illegal: Option<Illegal>,
    /// Fragmented datagrams beside the conversations. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
    /// Kinds of conversations. Default: one request of 64 octets and one answer of 128 octets over TCP.
    pub mix: Vec<Conversation>,
}

/// Ends that the tester takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The client at the first port, the server at the second.
    #[default]
    Both,
    /// The client, at the only port.
    Client,
    /// The server, at the only port.
    Server,
}

impl Role {
    /// Returns the name in descriptions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// Returns the number of ports that the tester requires.
    #[must_use]
    pub const fn ports(self) -> usize {
        match self {
            Self::Both => 2,
            Self::Client | Self::Server => 1,
        }
    }
}

/// `[connections.client]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all(deserialize = "kebab-case"))]
pub struct ClientSide {
    /// First address.
    pub address: IpAddr,
    /// Number of consecutive addresses.
    pub count: u32,
    /// First and last port of each address.
    pub ports: [u16; 2],
    /// Source MAC address. Default: that of the tester's other frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Destination MAC address. Default: that of the other port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<MacAddress>,
}

/// `[connections.server]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all(deserialize = "kebab-case"))]
pub struct ServerSide {
    /// First address.
    pub address: IpAddr,
    /// Number of consecutive addresses.
    pub count: u32,
    /// Source MAC address. Default: that of the tester's other frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Destination MAC address. Default: that of the other port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<MacAddress>,
}

/// `[[connections.mix]]`: one kind of conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Conversation {
    /// Name in results.
    pub name: String,
    /// Transport protocol.
    #[serde(default)]
    pub protocol: TransportProtocol,
    /// Share of the conversations, relative to the other entries.
    #[serde(default = "share")]
    pub share: f64,
    /// Port of the server.
    pub port: u16,
    /// Size of a request, octets.
    pub request: Size,
    /// Size of an answer, octets.
    pub answer: Size,
    /// Requests of a conversation.
    #[serde(default = "transactions")]
    pub transactions: u32,
    /// Duration of a conversation, milliseconds, instead of the number of requests. Requires `interval_ms` or `think_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// Time from an answer to the next request, milliseconds.
    #[serde(default)]
    pub think_ms: f64,
    /// Time from one request to the next, milliseconds. Over TCP, a request also waits for the answer to the one before. Default: each
    /// request follows the answer to the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<f64>,
}

impl Conversation {
    /// Returns the number of requests: `transactions`, or the duration divided by the time from one request to the next, rounded up.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a description are positive, and the cast saturates"
    )]
    pub fn requests(&self) -> u32 {
        let period_ms = self.interval_ms.unwrap_or(self.think_ms);
        match self.duration_ms {
            Some(duration_ms) => (duration_ms / period_ms).ceil().max(1.0) as u32,
            None => self.transactions,
        }
    }

    /// Replaces the number of requests and the times between them.
    pub(super) fn repeat(&mut self, transactions: u32, think_ms: f64, interval_ms: Option<f64>) {
        (self.transactions, self.duration_ms) = (transactions, None);
        (self.think_ms, self.interval_ms) = (think_ms, interval_ms);
    }

    fn fault_of_duration(&self) -> Option<LocatedFault> {
        let duration_ms = self.duration_ms?;
        let key = At::Key("duration-ms");
        if self.transactions != transactions() {
            return fault(&[key], "duration-ms and transactions exclude each other");
        }
        if self.interval_ms.is_none() && self.think_ms <= 0.0 {
            return fault(&[key], "duration-ms requires interval-ms or think-ms");
        }
        outside("duration-ms", duration_ms, (1.0, TIME_MAX_MS)).or_else(|| {
            let requests = self.requests();
            let message = format!(
                "duration-ms is {duration_ms}, which requires {requests} requests (at most {TRANSACTIONS_MAX})"
            );
            match requests > TRANSACTIONS_MAX {
                true => fault(&[key], message),
                false => None,
            }
        })
    }
}

/// Transport protocol of conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportProtocol {
    /// A connection.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// Size of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a size is a number of octets, or [smallest, largest]"
)]
pub enum Size {
    /// Always the same, octets.
    Fixed(u32),
    /// Evenly distributed from the smallest to the largest, octets.
    Range([u32; 2]),
}

impl Size {
    /// Returns the smallest and the largest size, octets.
    #[must_use]
    pub const fn bounds(self) -> (u32, u32) {
        match self {
            Self::Fixed(octets) => (octets, octets),
            Self::Range([smallest, largest]) => (smallest, largest),
        }
    }
}

const fn share() -> f64 {
    1.0
}

const fn transactions() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionsFile {
    connections: Connections,
}

impl Default for Connections {
    /// Returns a description without a rate.
    fn default() -> Self {
        Self {
            role: Role::Both,
            rate: None,
            concurrent: None,
            open_max: 1 << 16,
            seed: 0,
            mss: None,
            window: 256 * 1024,
            syn_retries: 3,
            retries: 6,
            rto_min_ms: 200.0,
            idle_timeout_ms: 30_000.0,
            time_wait_ms: 1_000.0,
            answer_timeout_ms: 2_000.0,
            client: ClientSide::default(),
            server: ServerSide::default(),
            nat: None,
            flood: None,
            illegal: None,
            fragments: None,
            mix: vec![Conversation {
                name: "request".to_owned(),
                protocol: TransportProtocol::Tcp,
                share: 1.0,
                port: 80,
                request: Size::Fixed(64),
                answer: Size::Fixed(128),
                transactions: 1,
                duration_ms: None,
                think_ms: 0.0,
                interval_ms: None,
            }],
        }
    }
}

impl Default for ClientSide {
    /// Returns the range of the tester's first port (RFC 2544, appendix C.2.2), and all ports that are not well known.
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)),
            count: 1,
            ports: [1024, u16::MAX],
            mac: None,
            next_hop_mac: None,
        }
    }
}

impl Default for ServerSide {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(198, 18, 1, 1)),
            count: 1,
            mac: None,
            next_hop_mac: None,
        }
    }
}

pub(super) fn fault(path: &[At], message: impl Into<String>) -> Option<LocatedFault> {
    Some(LocatedFault {
        path: path.to_vec(),
        message: message.into(),
    })
}

/// Returns a fault unless a value is within its bounds.
pub(super) fn outside<T: PartialOrd + std::fmt::Display + Copy>(
    key: &'static str,
    value: T,
    (min, max): (T, T),
) -> Option<LocatedFault> {
    let message = format!("{key} is {value} (must be {min} to {max})");
    if value >= min && value <= max {
        return None;
    }
    fault(&[At::Key(key)], message)
}

impl Connections {
    /// Reads and checks a file with one table, `[connections]`.
    ///
    /// # Errors
    /// [`FileError`] with file, line and key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&locate::read(path)?, path)
    }

    /// Parses and checks the text of such a file. `path` is used in errors only. The rate may be missing.
    ///
    /// # Errors
    /// [`FileError`] with file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let ConnectionsFile { connections } =
            toml::from_str(text).map_err(|error| locate::of_toml(text, path, &error))?;
        match connections.first_fault() {
            None => Ok(connections),
            Some(mut fault) => {
                fault.path.insert(0, At::Key("connections"));
                Err(locate::of_fault(text, path, fault))
            }
        }
    }

    /// Returns the first error with its path below `[connections]`; `None` if the description is valid.
    #[must_use]
    pub fn first_fault(&self) -> Option<LocatedFault> {
        self.fault_of_load()
            .or_else(|| self.fault_of_tcp())
            .or_else(|| self.fault_of_ends())
            .or_else(|| self.fault_of_nat())
            .or_else(|| self.fault_of_mix())
            .or_else(|| self.fault_of_background())
    }

    fn fault_of_load(&self) -> Option<LocatedFault> {
        if let Some(rate) = self.rate
            && !(rate > 0.0 && rate <= RATE_MAX)
        {
            return fault(
                &[At::Key("rate")],
                format!("rate is {rate} (must be above 0 and at most {RATE_MAX})"),
            );
        }
        outside("open-max", self.open_max, (1, OPEN_MAX)).or_else(|| {
            let concurrent = self.concurrent?;
            outside("concurrent", concurrent, (1, self.open_max))
        })
    }

    fn fault_of_tcp(&self) -> Option<LocatedFault> {
        let times = [
            ("rto-min-ms", self.rto_min_ms),
            ("idle-timeout-ms", self.idle_timeout_ms),
            ("time-wait-ms", self.time_wait_ms),
            ("answer-timeout-ms", self.answer_timeout_ms),
        ];
        let mss = self.mss();
        outside("mss", mss, (MSS_MIN, MSS_MAX))
            .or_else(|| outside("window", self.window, (u32::from(mss), WINDOW_MAX)))
            .or_else(|| outside("syn-retries", self.syn_retries, (0, 15)))
            .or_else(|| outside("retries", self.retries, (0, 15)))
            .or_else(|| {
                let mut times = times.into_iter();
                times.find_map(|(key, ms)| outside(key, ms, (1.0, TIME_MAX_MS)))
            })
    }

    fn fault_of_ends(&self) -> Option<LocatedFault> {
        let [first, last] = self.client.ports;
        if first == 0 || first > last {
            return fault(
                &[At::Key("client"), At::Key("ports")],
                "ports are [first, last], from 1 on",
            );
        }
        if self.client.address.is_ipv4() != self.server.address.is_ipv4() {
            return fault(
                &[At::Key("server"), At::Key("address")],
                "client and server have addresses of different versions",
            );
        }
        let ends = [
            ("client", self.client.address, self.client.count),
            ("server", self.server.address, self.server.count),
        ];
        for (end, address, count) in ends {
            let number = outside("count", count, (1, ADDRESSES_MAX));
            if let Some(mut fault) = number {
                fault.path.insert(0, At::Key(end));
                return Some(fault);
            }
            if last_address(address, count).is_none() {
                return fault(
                    &[At::Key(end), At::Key("address")],
                    format!("{count} addresses from {address} on exceed the address space"),
                );
            }
        }
        None
    }

    fn fault_of_nat(&self) -> Option<LocatedFault> {
        let expected = self.nat.as_ref()?;
        let is_ipv4 = self.server.address.is_ipv4();
        let is_other = |range: &PoolRange| range.first.is_ipv4() != is_ipv4;
        if let Some(index) = expected.pool.iter().position(is_other) {
            return fault(
                &[At::Key("nat"), At::Key("pool"), At::Index(index)],
                "pool and server have addresses of different versions",
            );
        }
        let mut fault = expected.first_fault()?;
        fault.path.insert(0, At::Key("nat"));
        Some(fault)
    }

    fn fault_of_mix(&self) -> Option<LocatedFault> {
        if self.mix.is_empty() || self.mix.len() > MIX_MAX {
            return fault(
                &[At::Key("mix")],
                format!("a mix has 1 to {MIX_MAX} entries"),
            );
        }
        for (index, entry) in self.mix.iter().enumerate() {
            let is_repeated =
                |other: &Conversation| other.port == entry.port && other.protocol == entry.protocol;
            let found = if self.mix.iter().take(index).any(is_repeated) {
                fault(
                    &[At::Key("port")],
                    format!("port {} has two entries of the same protocol", entry.port),
                )
            } else {
                self.fault_of_entry(entry)
            };
            if let Some(mut fault) = found {
                fault.path.insert(0, At::Index(index));
                fault.path.insert(0, At::Key("mix"));
                return Some(fault);
            }
        }
        None
    }

    fn fault_of_entry(&self, entry: &Conversation) -> Option<LocatedFault> {
        if !(entry.share > 0.0 && entry.share <= 1e9) {
            return fault(
                &[At::Key("share")],
                format!("share is {} (must be above 0)", entry.share),
            );
        }
        let of_times = outside("port", entry.port, (1, u16::MAX))
            .or_else(|| outside("transactions", entry.transactions, (1, TRANSACTIONS_MAX)))
            .or_else(|| outside("think-ms", entry.think_ms, (0.0, TIME_MAX_MS)))
            .or_else(|| {
                let interval_ms = entry.interval_ms?;
                outside("interval-ms", interval_ms, (0.001, TIME_MAX_MS))
            })
            .or_else(|| entry.fault_of_duration());
        if of_times.is_some() {
            return of_times;
        }
        if entry.think_ms >= self.idle_timeout_ms {
            return fault(
                &[At::Key("think-ms")],
                "the think time reaches idle-timeout-ms (increase idle-timeout-ms)",
            );
        }
        let is_udp = entry.protocol == TransportProtocol::Udp;
        let interval_ms = entry.interval_ms.unwrap_or(0.0);
        if interval_ms >= self.idle_timeout_ms {
            return fault(
                &[At::Key("interval-ms")],
                "the interval reaches idle-timeout-ms (increase idle-timeout-ms)",
            );
        }
        if entry.interval_ms.is_some() && entry.think_ms > 0.0 {
            return fault(
                &[At::Key("think-ms")],
                "think-ms and interval-ms exclude each other",
            );
        }
        let answer_min = if is_udp { HEAD } else { 1 };
        let sizes = [
            ("request", entry.request, HEAD),
            ("answer", entry.answer, answer_min),
        ];
        let mut sizes = sizes.into_iter();
        sizes.find_map(|(key, size, min)| self.fault_of_size(entry, key, size, min))
    }

    fn fault_of_size(
        &self,
        entry: &Conversation,
        key: &'static str,
        size: Size,
        min: u32,
    ) -> Option<LocatedFault> {
        let (smallest, largest) = size.bounds();
        let max = match entry.protocol {
            TransportProtocol::Udp => u32::from(self.mss()),
            TransportProtocol::Tcp => STREAM_MAX
                .checked_div(entry.requests())
                .unwrap_or(STREAM_MAX),
        };
        if smallest < min || smallest > largest || largest > max {
            return fault(
                &[At::Key(key)],
                format!("{key} is {smallest} to {largest} octets (must be {min} to {max})"),
            );
        }
        None
    }

    /// Returns true if the description has the number of conversations to open, or the tester opens none.
    #[must_use]
    pub fn has_load(&self) -> bool {
        self.role == Role::Server || self.rate.is_some() || self.concurrent.is_some()
    }

    /// Returns the maximum segment size, octets of data.
    #[must_use]
    pub fn mss(&self) -> u16 {
        // The MTU of Ethernet, without the headers of TCP and IP.
        self.mss
            .unwrap_or(1480_u16.saturating_sub(self.ip_header()))
    }

    /// Returns the largest frame, octets with FCS.
    #[must_use]
    pub fn frame_size_max(&self) -> u16 {
        // Ethernet and FCS, IP, TCP.
        let ip_header = self.ip_header();
        let segment = self.mss().saturating_add(18 + 20).saturating_add(ip_header);
        // The fragment header of IPv6 (RFC 8200, section 4.5), and UDP.
        let fragments = self.fragments.as_ref();
        let fragment = fragments.map_or(0, |it| {
            it.octets
                .saturating_add(18 + 8 + 8)
                .saturating_add(ip_header)
        });
        segment.max(fragment)
    }

    fn ip_header(&self) -> u16 {
        if self.server.address.is_ipv4() {
            20
        } else {
            40
        }
    }
}

/// Returns the last of `count` consecutive addresses; `None` if there are not so many.
pub(super) fn last_address(first: IpAddr, count: u32) -> Option<IpAddr> {
    let more = count.checked_sub(1)?;
    Some(match first {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().checked_add(more)?)),
        IpAddr::V6(first) => {
            let last = first.to_bits().checked_add(u128::from(more))?;
            IpAddr::V6(Ipv6Addr::from_bits(last))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Connections, String> {
        Connections::parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_description_is_read() {
        let text = "
[connections]
rate = 1000.0
seed = 7
open-max = 4000000
[connections.client]
address = \"10.0.0.1\"
count = 1000
ports = [1024, 2047]
next-hop-mac = \"02:00:00:00:00:09\"
[connections.server]
address = \"10.1.0.1\"
[[connections.mix]]
name = \"web\"
share = 9.0
port = 80
request = 100
answer = [1000, 20000]
transactions = 3
think-ms = 50.0
[[connections.mix]]
name = \"dns\"
protocol = \"udp\"
port = 53
request = 60
answer = [60, 400]
[[connections.mix]]
name = \"voice\"
protocol = \"udp\"
port = 5004
request = 172
answer = 172
transactions = 500
interval-ms = 20.0
";
        let read = parse(text).unwrap();
        assert_eq!((read.mix.len(), read.rate), (3, Some(1000.0)));
        assert_eq!(read.mix[0].answer.bounds(), (1000, 20_000));
        assert_eq!(read.mix[2].interval_ms, Some(20.0));
        assert_eq!(read.frame_size_max(), 1518);
        let json = serde_json::to_value(&read).unwrap();
        assert_eq!(json["mix"][2]["interval_ms"], 20.0);
        assert_eq!(json["client"]["next_hop_mac"], "02:00:00:00:00:09");
        assert_eq!(parse("[connections]\n"), Ok(Connections::default()));
        assert!(Connections::default().first_fault().is_none());
    }

    #[test]
    fn a_duration_determines_the_number_of_requests() {
        let requests = |times: &str| {
            let text = format!(
                "[[connections.mix]]\nname = \"a\"\nport = 80\nrequest = 100\nanswer = 1\n{times}\n"
            );
            parse(&text).map(|read| read.mix[0].requests())
        };
        for (times, expected) in [
            ("transactions = 7", 7),
            ("duration-ms = 3000.0\ninterval-ms = 20.0", 150),
            ("duration-ms = 3001.0\ninterval-ms = 20.0", 151),
            ("duration-ms = 1.0\ninterval-ms = 20.0", 1),
            ("duration-ms = 1000.0\nthink-ms = 50.0", 20),
        ] {
            assert_eq!(requests(times), Ok(expected), "{times}");
        }
        for (times, expected) in [
            (
                "duration-ms = 1000.0",
                "mix[0].duration-ms: duration-ms requires interval-ms or think-ms",
            ),
            (
                "duration-ms = 0.0\ninterval-ms = 20.0",
                "mix[0].duration-ms: duration-ms is 0 (must be 1 to 86400000)",
            ),
            (
                "duration-ms = 1000.0\ninterval-ms = 20.0\ntransactions = 2",
                "mix[0].duration-ms: duration-ms and transactions exclude each other",
            ),
            (
                "duration-ms = 86400000.0\ninterval-ms = 1.0",
                "which requires 86400000 requests (at most 1048576)",
            ),
        ] {
            let error = requests(times).unwrap_err();
            assert!(error.contains(expected), "{times}: {error}");
        }
    }

    #[test]
    fn faults_are_located() {
        let entry = "[[connections.mix]]\nname = \"a\"\nport = 80\nrequest = 100\nanswer = 1\n";
        for (text, expected) in [
            (
                "[connections.nat]\npool = [\"1.2.3.4/40\"]\n".to_owned(),
                "'1.2.3.4/40' is not an address",
            ),
            (
                "[connections.nat]\npool = [\"1.2.3.4\"]\nports = [0, 5]\n".to_owned(),
                "c.toml:3:9: connections.nat.ports: ",
            ),
            (
                "[connections.nat]\npool = [\"2001:db8::\"]\n".to_owned(),
                "connections.nat.pool[0]: pool and server",
            ),
            (
                "[connections.nat]\npaired = true\n".to_owned(),
                "connections.nat.pool: without a pool",
            ),
            (
                "[connections]\ncolour = 1\n".to_owned(),
                "c.toml:2:1: connections.colour: ",
            ),
            (
                "[connections]\nrate = 0.0\n".to_owned(),
                "c.toml:2:8: connections.rate: rate is 0",
            ),
            (
                "[connections]\nrate = nan\n".to_owned(),
                "c.toml:2:8: connections.rate: rate is NaN",
            ),
            (
                "[connections]\nconcurrent = 70000\n".to_owned(),
                "c.toml:2:14: connections.concurrent: concurrent is 70000 (must be 1 to 65536)",
            ),
            (
                "[connections]\nmss = 100\n".to_owned(),
                "c.toml:2:7: connections.mss: ",
            ),
            (
                "[connections.flood]\nrate = 0.0\n".to_owned(),
                "c.toml:2:8: connections.flood.rate: rate is 0",
            ),
            ("[connections.flood]\ncount = 5\n".to_owned(), "rate"),
            (
                "[connections.flood]\nrate = 1.0\ncount = 0\n".to_owned(),
                "c.toml:3:9: connections.flood.count: count is 0",
            ),
            (
                "[connections.flood]\nrate = 1.0\naddress = \"2001:db8::1\"\n".to_owned(),
                "c.toml:3:11: connections.flood.address: flood and server",
            ),
            (
                "[connections.illegal]\nrate = -1.0\n".to_owned(),
                "c.toml:2:8: connections.illegal.rate: rate is -1",
            ),
            (
                "[connections.flood]\nrate = 1.0\n[connections.illegal]\nrate = 1.0\naddress = \"198.19.0.0\"\n".to_owned(),
                "c.toml:5:11: connections.illegal.address: the sources 198.19.0.0 to 198.19.0.249 include addresses of the flood",
            ),
            (
                "[connections.fragments]\nrate = 1.0\nfragments = 17\n".to_owned(),
                "c.toml:3:13: connections.fragments.fragments: fragments is 17 (must be 2 to 16)",
            ),
            (
                "[connections.fragments]\nrate = 1.0\noctets = 100\n".to_owned(),
                "c.toml:3:10: connections.fragments.octets: octets is 100 (must be a multiple of 8)",
            ),
            (
                "[connections.flood]\nrate = 1.0\naddress = \"198.18.0.0\"\ncount = 9\n".to_owned(),
                "connections.flood.address: the sources 198.18.0.0 to 198.18.0.8 include addresses of the client",
            ),
            (
                format!(
                    "[connections.flood]\nrate = 1.0\n{}protocol = \"udp\"\n",
                    entry.replace("answer = 1\n", "answer = 52\n")
                ),
                "connections.flood: a flood of SYNs requires",
            ),
            (
                "[connections.client]\naddress = \"::1\"\n".to_owned(),
                "connections.server.address: ",
            ),
            (
                "[connections.client]\naddress = \"255.255.255.255\"\ncount = 2\n".to_owned(),
                "c.toml:2:11: connections.client.address: 2 addresses",
            ),
            (
                "[connections.client]\nports = [5, 4]\n".to_owned(),
                "c.toml:2:9: connections.client.ports: ",
            ),
            (
                "[connections.server]\ncount = 0\n".to_owned(),
                "c.toml:2:9: connections.server.count: count is 0",
            ),
            (
                format!("{entry}{entry}"),
                "c.toml:8:8: connections.mix[1].port: port 80 has two entries",
            ),
            (
                format!("{entry}share = 0.0\n"),
                "c.toml:6:9: connections.mix[0].share: ",
            ),
            (
                format!("{entry}interval-ms = 30000.0\n"),
                "connections.mix[0].interval-ms: the interval reaches",
            ),
            (
                format!("{entry}think-ms = 30000.0\n"),
                "connections.mix[0].think-ms: the think time reaches",
            ),
            (
                format!("{entry}transactions = 0\n"),
                "connections.mix[0].transactions: transactions is 0",
            ),
            (
                entry.replace("100", "51"),
                "connections.mix[0].request: request is 51 to 51 octets (must be 52 to 1073741824)",
            ),
            (
                entry.replace("100", "[60, 53]"),
                "connections.mix[0].request: ",
            ),
            (
                entry.replace("100", "\"big\""),
                "a size is a number of octets, or [smallest, largest]",
            ),
            (
                format!("{entry}protocol = \"udp\"\n"),
                "connections.mix[0].answer: answer is 1 to 1 octets (must be 52 to 1460)",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{error}\n{text}");
        }
    }
}
