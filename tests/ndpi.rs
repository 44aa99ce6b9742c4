// SPDX-License-Identifier: Apache-2.0
//! Names that rules find in the first packets of connections, compared with those that nDPI finds in captures of the same packets. Requires
//! ndpiReader of Debian's libndpi-bin; `make ndpi` runs it.
//!
//! `QUIETWIRE_NDPI_READER` names the program, `QUIETWIRE_SEED` the seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::random::Random;
use quietwire_base::supervised::Command;
use quietwire_base::{BURST_MAX, Deadline};
use quietwire_tables::filter::{
    Action, Fallback, NameFlows, NameMatch, PacketMatch, PortRule, PortRules, Ports, Protocol,
    RuleTable, Verdict,
};

/// Time for ndpiReader.
const LIMIT: Duration = Duration::from_secs(60);
/// Conversations of each kind.
const EACH: usize = 40;
/// Port of the first client.
const FIRST_PORT: u16 = 40_000;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];

/// Protocol of a conversation, and the key of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tls,
    Http,
    Dns,
    DnsOverTcp,
}

impl Kind {
    const fn port(self) -> u16 {
        match self {
            Self::Tls => 443,
            Self::Http => 80,
            Self::Dns | Self::DnsOverTcp => 53,
        }
    }

    const fn protocol(self) -> u8 {
        match self {
            Self::Dns => UDP,
            _ => TCP,
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Tls => "tls-name",
            Self::Http => "http-host",
            Self::Dns | Self::DnsOverTcp => "dns-name",
        }
    }
}

/// Packets of a client.
#[derive(Debug)]
struct Conversation {
    kind: Kind,
    /// Data of the client, one element for each packet.
    data: Vec<Vec<u8>>,
    /// The name in it.
    name: Option<String>,
    /// Report of nDPI 4.2, if it is another name.
    differs: Option<&'static str>,
}

impl Conversation {
    fn new(kind: Kind, data: Vec<Vec<u8>>, name: &str) -> Self {
        Self {
            kind,
            data,
            name: Some(name.to_ascii_lowercase()),
            differs: None,
        }
    }

    /// Returns its frames: those of the client, and whether each is from the client.
    fn frames(&self, client: u16) -> Vec<(Vec<u8>, bool)> {
        let port = self.kind.port();
        if self.kind.protocol() == UDP {
            let frame = |data: &Vec<u8>| (datagram(client, port, data), true);
            return self.data.iter().map(frame).collect();
        }
        let mut frames = vec![
            (segment(true, [client, port], 99, SYN, &[]), true),
            (segment(false, [port, client], 1, SYN | ACK, &[]), false),
            (segment(true, [client, port], 100, ACK, &[]), true),
        ];
        let mut sequence = 100;
        for data in &self.data {
            frames.push((segment(true, [client, port], sequence, ACK, data), true));
            sequence += u32::try_from(data.len()).unwrap();
        }
        frames.push((segment(false, [port, client], 2, ACK, &[]), false));
        frames
    }
}

/// Returns the frame of an IPv4 packet.
fn packet(is_from_client: bool, protocol: u8, ports: [u16; 2], rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(u16::try_from(24 + rest.len()).unwrap().to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    frame.extend(match is_from_client {
        true => [CLIENT, SERVER].concat(),
        false => [SERVER, CLIENT].concat(),
    });
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(rest);
    frame
}

fn segment(
    is_from_client: bool,
    ports: [u16; 2],
    sequence: u32,
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let header = [0, 0, 0, 2, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
    let sequence = sequence.to_be_bytes();
    packet(is_from_client, TCP, ports, &[&sequence, &header, data])
}

fn datagram(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).unwrap().to_be_bytes();
    packet(true, UDP, [from, to], &[&length, &[0, 0], data])
}

/// Returns octets after their length in so many octets.
fn counted(width: usize, octets: &[u8]) -> Vec<u8> {
    let length = octets.len().to_be_bytes();
    [&length[length.len() - width..], octets].concat()
}

/// Returns the first data of a TLS client (RFC 8446, section 4.1.2), with so much padding in front of its server name.
fn hello(name: Option<&str>, padding: usize) -> Vec<u8> {
    let extension = |kind: u16, body: &[u8]| {
        let kind = kind.to_be_bytes();
        [&kind[..], &counted(2, body)].concat()
    };
    // RFC 7685, and supported versions.
    let mut extensions = extension(21, &vec![0; padding]);
    if let Some(name) = name {
        let entry = [&[0][..], &counted(2, name.as_bytes())].concat();
        extensions.extend(extension(0, &counted(2, &entry)));
    }
    extensions.extend(extension(43, &[2, 3, 4]));
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend(counted(1, &[9; 32]));
    body.extend(counted(2, &[0x13, 1, 0x13, 2]));
    body.extend(counted(1, &[0]));
    body.extend(counted(2, &extensions));
    let message = [&[1][..], &counted(3, &body)].concat();
    [&[22, 3, 1][..], &counted(2, &message)].concat()
}

fn request(host: &str) -> Vec<u8> {
    format!("GET /index HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\nUser-Agent: test\r\n\r\n")
        .into_bytes()
}

fn query(name: &str) -> Vec<u8> {
    let mut octets = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        octets.extend(counted(1, label.as_bytes()));
    }
    octets.extend([0, 0, 1, 0, 1]);
    octets
}

/// Returns data in parts that end at random places.
fn parts(random: &mut Random, data: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut ends: Vec<usize> = (1..count)
        .map(|_| 1 + random.index(data.len() - 1))
        .collect();
    ends.push(data.len());
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut parts = Vec::new();
    for end in ends {
        parts.push(data[start..end].to_vec());
        start = end;
    }
    parts
}

/// Returns a name of up to 50 characters, some of them in upper case.
fn name(random: &mut Random) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut name = String::new();
    for _ in 0..=random.below(2) {
        for _ in 0..=random.below(18) {
            let letter = char::from(LETTERS[random.index(LETTERS.len())]);
            name.push(match random.below(4) {
                0 => letter.to_ascii_uppercase(),
                _ => letter,
            });
        }
        name.push('.');
    }
    name + "example"
}

/// Conversations on which both have to agree.
fn alike(random: &mut Random) -> Vec<Conversation> {
    let mut all = Vec::new();
    for _ in 0..EACH {
        let host = name(random);
        let padding = random.index(1000);
        let data = hello(Some(&host), padding);
        let count = 1 + random.index(3);
        all.push(Conversation::new(
            Kind::Tls,
            parts(random, &data, count),
            &host,
        ));
        let host = name(random);
        let shown = match random.below(3) {
            0 => format!("{host}:8080"),
            _ => host.clone(),
        };
        all.push(Conversation::new(Kind::Http, vec![request(&shown)], &host));
        let host = name(random);
        all.push(Conversation::new(Kind::Dns, vec![query(&host)], &host));
        let data = counted(2, &query(&host));
        all.push(Conversation::new(Kind::DnsOverTcp, vec![data], &host));
    }
    // Without a name.
    let other: Vec<u8> = (0..200u8).map(|octet| octet.wrapping_mul(7)).collect();
    for (kind, data) in [
        (Kind::Tls, hello(None, 100)),
        (Kind::Tls, other.clone()),
        (Kind::Http, b"GET / HTTP/1.0\r\nAccept: x\r\n\r\n".to_vec()),
        (Kind::Http, other),
    ] {
        all.push(Conversation {
            kind,
            data: vec![data],
            name: None,
            differs: None,
        });
    }
    all
}

/// Conversations on which nDPI 4.2 reports something else, as docs/firewall.md says.
fn otherwise() -> Vec<Conversation> {
    let two =
        "GET / HTTP/1.1\r\nHost: one.example\r\n\r\nGET / HTTP/1.1\r\nHost: two.example\r\n\r\n";
    let start = b"GET / HTTP/1.1\r\nHo".to_vec();
    let rest = b"st: split.example\r\n\r\n".to_vec();
    let spaces = b"GET / HTTP/1.1\r\nHost:   spaces.example  \r\n\r\n".to_vec();
    let of_http = |data, name, differs| Conversation {
        differs: Some(differs),
        ..Conversation::new(Kind::Http, data, name)
    };
    vec![
        of_http(vec![two.as_bytes().to_vec()], "one.example", "two.example"),
        of_http(vec![start, rest], "split.example", ""),
        of_http(vec![spaces], "spaces.example", "  spaces.example  "),
    ]
}

/// Writes a capture (pcap-savefile(5)).
fn write_capture<'frame>(path: &Path, frames: impl Iterator<Item = &'frame Vec<u8>>) {
    let mut octets = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        octets.extend(word.to_le_bytes());
    }
    for (second, frame) in (1000u32..).zip(frames) {
        let length = u32::try_from(frame.len()).unwrap();
        for word in [second, 0, length, length] {
            octets.extend(word.to_le_bytes());
        }
        octets.extend(frame);
    }
    fs::write(path, octets).unwrap();
}

/// Returns the names that ndpiReader finds, by the port of the client.
fn reported(capture: &Path, table: &Path) -> BTreeMap<u16, String> {
    let program = std::env::var("QUIETWIRE_NDPI_READER");
    let program = program.unwrap_or_else(|_| "ndpiReader".to_owned());
    let command = Command::new(&program)
        .args(["-q", "-i"])
        .arg(capture)
        .arg("-C")
        .arg(table);
    let finished = match command.run(Deadline::after(LIMIT)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("unavailable: {program} is not installed (run: apt install libndpi-bin)")
        }
        finished => finished.unwrap(),
    };
    if let Err(printed) = finished.into_result() {
        panic!("{program}: {printed}");
    }
    let text = fs::read_to_string(table).unwrap();
    let mut lines = text.lines();
    let header = lines.next().unwrap().trim_start_matches('#');
    // Later versions separate columns by another character.
    let separator = header
        .chars()
        .find(|one| *one != '_' && !one.is_alphanumeric());
    let separator = separator.unwrap();
    let column = |name: &str| {
        let place = header.split(separator).position(|one| one == name);
        place.unwrap_or_else(|| panic!("no column {name} in {header}"))
    };
    let (port, name) = (column("src_port"), column("server_name_sni"));
    let read = |line: &str| {
        let values: Vec<&str> = line.split(separator).collect();
        (values[port].parse().unwrap(), values[name].to_owned())
    };
    lines.map(read).collect()
}

/// A rule that accepts conversations of a kind with one name; all others are dropped.
fn rules(kind: Kind, name: &str) -> PortRules {
    let port = kind.port();
    let rule = PortRule::new(
        PacketMatch {
            protocol: Some(Protocol(kind.protocol())),
            destination_port: Some(Ports {
                first: port,
                last: port,
            }),
            ..PacketMatch::default()
        },
        Action::Accept,
    );
    let names = format!(r#"{{"{}":["{name}"]}}"#, kind.key());
    let names: NameMatch = serde_json::from_str(&names).unwrap();
    let fallback = Fallback {
        default: Action::Drop,
        ..Fallback::default()
    };
    let table = RuleTable::with_names([rule], &[names], &[], fallback);
    PortRules::new(Arc::new(table), 0, None)
}

/// Returns whether a rule with this name accepts the last frame of the client.
fn accepts(flows: &mut NameFlows, kind: Kind, frames: &[(Vec<u8>, bool)], name: &str) -> bool {
    let rules = rules(kind, name);
    let mut is_accepted = false;
    for (frame, _) in frames.iter().filter(|(_, is_from_client)| *is_from_client) {
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let length = u32::try_from(frame.len()).unwrap();
        let burst = [(&frame[..], length)].into_iter();
        rules.judge_named(burst, &[], flows, &mut verdicts);
        is_accepted = verdicts[0].accepts();
    }
    is_accepted
}

#[test]
#[ignore = "requires ndpiReader of libndpi-bin; make ndpi runs it"]
fn names_of_rules_are_those_that_ndpi_reports() {
    let seed = std::env::var("QUIETWIRE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut conversations = alike(&mut Random::new(seed));
    conversations.extend(otherwise());
    let frames: Vec<Vec<(Vec<u8>, bool)>> = (FIRST_PORT..)
        .zip(&conversations)
        .map(|(client, conversation)| conversation.frames(client))
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("names.pcap");
    write_capture(&capture, frames.iter().flatten().map(|(frame, _)| frame));
    let reported = reported(&capture, &directory.path().join("names.csv"));
    assert_eq!(reported.len(), conversations.len(), "conversations");
    let mut flows = NameFlows::new().unwrap();
    for ((client, conversation), frames) in (FIRST_PORT..).zip(&conversations).zip(&frames) {
        let context = format!("seed {seed}, client {client}: {:?}", conversation.name);
        let name = conversation.name.as_deref();
        let of_ndpi = reported[&client].as_str();
        let is_alike = of_ndpi == name.unwrap_or_default();
        assert!(
            is_alike || Some(of_ndpi) == conversation.differs,
            "{context}: '{of_ndpi}'"
        );
        let kind = conversation.kind;
        if let Some(name) = name {
            assert!(accepts(&mut flows, kind, frames, name), "{context}");
        }
        assert!(
            !accepts(&mut flows, kind, frames, "other.example"),
            "{context}"
        );
    }
}
