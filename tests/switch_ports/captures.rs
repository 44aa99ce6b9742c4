// SPDX-License-Identifier: Apache-2.0
//! TCP segments captured at both ends: whatever the switch passes whole, cuts or merges, each octet of data arrives with the header fields
//! that it was sent with (RFC 9293; options: RFC 7323; congestion marks: RFC 3168).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::iter::zip;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, ChildStdout, Stdio};
use std::thread::JoinHandle;

use serde::Deserialize;
use tempfile::TempDir;

use crate::kernel_forwarding::until_forwarded;
use crate::offloads::{IPV4, IPV6, Net, ROUTED_IPV4, ROUTED_IPV6};
use crate::rig::{DEADLINE, Namespace, Switch, ping, run};

/// Octets in each direction.
const OCTETS: usize = 120_000;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Congestion marks in the traffic class (RFC 3168, section 5): not 0 for a transport that understands them.
const ECN: u8 = 0x03;

/// A segment of any size, as the script prints it.
#[derive(Clone, Debug, Deserialize)]
struct Segment {
    is_from_server: bool,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    window: u16,
    options: String,
    traffic_class: u8,
    data: String,
}

/// Fields that all segments of a large frame have in common. Only the first one has CWR (RFC 3168, section 6.1.2).
type Fields = (u32, u8, u16, String, u8);

impl Segment {
    fn fields(&self) -> Fields {
        (
            self.acknowledgment,
            self.flags & !(FIN | PSH | CWR),
            self.window,
            self.options.clone(),
            self.traffic_class,
        )
    }

    fn octets(&self) -> Vec<u8> {
        let digits = self.data.as_bytes().chunks(2);
        let octet = |digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
        digits.map(octet).collect()
    }
}

/// A running capture, whose output is read meanwhile: the script waits for silence at its own end, and all do so at the same time.
struct Sniffer {
    child: Child,
    reader: JoinHandle<Vec<Segment>>,
}

impl Sniffer {
    /// Starts captures of a port of TCP, and waits until they see all frames.
    fn start(hosts: [&Namespace; 2], port: u16) -> [Self; 2] {
        let sniffers = hosts.map(|host| {
            let mut command = host.command("python3");
            command.args(["-c", include_str!("sniffer.py"), "eth0", &port.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().unwrap()
        });
        sniffers.map(|mut child| {
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            let reader = std::thread::spawn(|| segments(lines));
            Self { child, reader }
        })
    }

    /// Ends captures, which wait for silence, and returns the segments of each.
    fn end<const COUNT: usize>(mut sniffers: [[Self; 2]; COUNT]) -> [[Vec<Segment>; 2]; COUNT] {
        for sniffer in sniffers.iter_mut().flatten() {
            drop(sniffer.child.stdin.take());
        }
        sniffers.map(|ends| ends.map(Self::captured))
    }

    fn captured(mut self) -> Vec<Segment> {
        let segments = self.reader.join().unwrap();
        assert!(self.child.wait().unwrap().success());
        segments
    }
}

fn segments(lines: Lines<BufReader<ChildStdout>>) -> Vec<Segment> {
    let read = |line: String| serde_json::from_str(&line).unwrap();
    lines.map(|line| read(line.unwrap())).collect()
}

/// Data of one segment.
#[derive(Debug)]
struct Piece {
    /// Distance of the first octet from the SYN.
    start: usize,
    octets: Vec<u8>,
    fields: Fields,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.octets.len()
    }
}

/// Contents of a capture in one direction.
#[derive(Default)]
struct Direction {
    /// All data: several pieces have an octet that was sent again.
    pieces: Vec<Piece>,
    /// Sequence numbers after segments with PSH and with FIN.
    ends: BTreeSet<(u8, u32)>,
    /// Fields of segments without data.
    others: BTreeSet<(u32, u8, Fields)>,
}

impl Direction {
    /// Returns the number of different octets.
    fn octets(&self) -> usize {
        let mut ranges: Vec<_> = self.pieces.iter().map(Piece::range).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut count, mut end) = (0, 0);
        for range in ranges {
            count += range.end.max(end) - range.start.max(end);
            end = range.end.max(end);
        }
        count
    }

    /// Returns the first octet of a piece of another capture that is nowhere here with the same fields and value, as its distance from
    /// the SYN.
    fn lacks(&self, piece: &Piece) -> Option<usize> {
        let mut is_known = vec![false; piece.octets.len()];
        for known in &self.pieces {
            let range = known.range();
            let common = range.start.max(piece.start)..range.end.min(piece.range().end);
            if common.is_empty() || known.fields != piece.fields {
                continue;
            }
            let ours = &known.octets[common.start - known.start..common.end - known.start];
            let within = common.start - piece.start..common.end - piece.start;
            let marks = &mut is_known[within.clone()];
            for (mark, (own, other)) in zip(marks, zip(ours, &piece.octets[within])) {
                *mark |= own == other;
            }
        }
        let lacking = is_known.iter().position(|is_known| !is_known);
        lacking.map(|at| piece.start + at)
    }
}

fn direction(segments: &[Segment], is_from_server: bool) -> Direction {
    let mut all = Direction::default();
    let is_first = |one: &&Segment| one.is_from_server == is_from_server && one.flags & SYN != 0;
    let first = segments.iter().find(is_first).expect("a SYN").sequence;
    for segment in segments {
        if segment.is_from_server != is_from_server {
            continue;
        }
        let octets = segment.octets();
        let end = segment.sequence.wrapping_add(octets.len() as u32);
        for flag in [FIN, PSH] {
            if segment.flags & flag != 0 {
                all.ends.insert((flag, end));
            }
        }
        if octets.is_empty() {
            let other = (segment.sequence, segment.flags, segment.fields());
            all.others.insert(other);
        } else {
            all.pieces.push(Piece {
                start: segment.sequence.wrapping_sub(first) as usize,
                octets,
                fields: segment.fields(),
            });
        }
    }
    all
}

/// Checks that everything that arrived was sent so, and that all data arrived.
fn compare(sent: &Direction, arrived: &Direction, case: &str) {
    assert_eq!(sent.octets(), OCTETS, "{case}: capture of the sender");
    assert_eq!(arrived.octets(), OCTETS, "{case}");
    for piece in &arrived.pieces {
        let lacking = sent.lacks(piece);
        assert_eq!(lacking, None, "{case}: not sent so: {piece:?}");
    }
    assert!(arrived.ends.is_subset(&sent.ends), "{case}");
    assert!(arrived.others.is_subset(&sent.others), "{case}");
    // The last push and the end of the stream are not lost.
    assert!(arrived.ends.iter().any(|(flag, _)| *flag == FIN), "{case}");
}

/// Checks that the SYN of a direction has the maximum segment size of the MTU (RFC 9293, section 3.7.1).
fn has_segment_size(arrived: &Direction, to: &str, mtu: &str, case: &str) {
    let headers = if to.contains(':') { 60 } else { 40 };
    let size = mtu.parse::<u16>().unwrap() - headers;
    // It is the first option that the kernel writes.
    let option = format!("0204{size:04x}");
    let mut others = arrived.others.iter();
    let has_size =
        others.any(|(_, flags, fields)| flags & SYN != 0 && fields.3.starts_with(&option));
    assert!(has_size, "{case}: {option}: {:?}", arrived.others);
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..OCTETS).map(|at| ((at + seed) % 251) as u8).collect()
}

/// Sends data both ways over one connection.
pub(crate) fn exchange(net: &Net, to: &str, port: u16) {
    let to = SocketAddr::new(to.parse::<IpAddr>().unwrap(), port);
    let listener = net.right.within(move || TcpListener::bind(to).unwrap());
    let listener = listener.join().unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        both_ways(stream, 1)
    });
    let client = net
        .left
        .within(move || both_ways(TcpStream::connect(to).unwrap(), 2));
    assert!(client.join().unwrap() == pattern(1));
    assert!(server.join().unwrap() == pattern(2));
}

/// Sends and receives at the same time. Returns what was received up to the end of the stream.
fn both_ways(stream: TcpStream, seed: usize) -> Vec<u8> {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        writer.write_all(&pattern(seed)).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    (&stream).read_to_end(&mut heard).unwrap();
    sender.join().unwrap();
    heard
}

/// Ports between the hosts, and the path through the switch.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    uris: [&'static str; 2],
    mtu: &'static str,
    is_routed: bool,
    /// Counter of the right port that shows how frames pass: whole, cut, merged, or forwarded by the kernel.
    counter: &'static str,
}

/// Counter of frames that the kernel forwards. Otherwise, the switch forwards all frames.
const BY_KERNEL: &str = "kernel_forwarded";

const TAPS: [&str; 2] = ["tap:eth0?netns=NETNS", "tap:eth0?netns=NETNS"];
const PAIRS: [&str; 2] = ["veth:qwcpl?netns=NETNS", "veth:qwcpr?netns=NETNS"];
const PACKETS: [&str; 2] = ["af-packet:l0", "af-packet:r0"];
const CUT: [&str; 2] = ["af-packet:l0", "af-xdp:r0"];

/// Returns ports of a bridge.
const fn bridged(name: &'static str, uris: [&'static str; 2], counter: &'static str) -> Case {
    Case {
        name,
        uris,
        mtu: "1500",
        is_routed: false,
        counter,
    }
}

/// Returns ports with interfaces of the router.
const fn routed(name: &'static str, uris: [&'static str; 2], counter: &'static str) -> Case {
    Case {
        is_routed: true,
        ..bridged(name, uris, counter)
    }
}

/// Returns the case with an MTU of 9,000 octets.
const fn jumbo(case: Case) -> Case {
    Case {
        mtu: "9000",
        ..case
    }
}

#[test]
fn segments_at_both_ends_are_the_same() {
    are_all_the_same(&[
        bridged("cpt", TAPS, "tx_tso_frames"),
        bridged("cpv", PAIRS, "tx_tso_frames"),
        bridged("cpk", PAIRS, BY_KERNEL),
        bridged("cpp", PACKETS, "tx_tso_frames"),
        bridged("cpx", CUT, "segmented"),
        bridged("cpg", ["af-xdp:l0", "af-packet:r0?gro=on"], "merged"),
        bridged(
            "cpm",
            ["af-packet:l0", "tap:eth0?netns=NETNS"],
            "tx_tso_frames",
        ),
        bridged(
            "cpq",
            ["af-xdp:l0", "tap:eth0?netns=NETNS&gro=on"],
            "merged",
        ),
        routed("crt", TAPS, "tx_tso_frames"),
        routed("crx", CUT, "segmented"),
        routed("crg", ["af-xdp:l0", "af-packet:r0?gro=on"], "merged"),
        routed(
            "crm",
            ["af-xdp:l0", "veth:qwcpr?netns=NETNS&gro=on"],
            "merged",
        ),
    ]);
}

#[test]
fn segments_of_jumbo_frames_at_both_ends_are_the_same() {
    are_all_the_same(&[
        jumbo(bridged("cjp", PACKETS, "tx_tso_frames")),
        jumbo(bridged("cjv", PAIRS, "tx_tso_frames")),
        jumbo(bridged("cjk", PAIRS, BY_KERNEL)),
        jumbo(routed("crj", TAPS, "tx_tso_frames")),
        jumbo(routed("cjr", PACKETS, "tx_tso_frames")),
        jumbo(routed("cjw", PAIRS, "tx_tso_frames")),
    ]);
}

fn are_all_the_same(cases: &[Case]) {
    const LANES: usize = 3;
    // Side by side: captures wait for silence.
    std::thread::scope(|scope| {
        for cases in cases.chunks(cases.len().div_ceil(LANES)) {
            scope.spawn(move || cases.iter().for_each(are_the_same));
        }
    });
}

/// Checks segments in both directions and of both versions of IP, and that the counter of the case shows how they passed.
fn are_the_same(case: &Case) {
    let Case {
        name,
        uris,
        mtu,
        counter,
        ..
    } = *case;
    let net = Net::for_ports(&format!("seg-{name}"), mtu, uris);
    let directory = TempDir::new().unwrap();
    let [left, right] = [(uris[0], &net.left), (uris[1], &net.right)]
        .map(|(uri, host)| uri.replace("NETNS", host.name()));
    let ports = [("left", left), ("right", right)];
    let frame_size_max = match mtu {
        "9000" => "9018",
        _ => "1518",
    };
    let by_kernel = counter == BY_KERNEL;
    let mut arguments = vec!["--frame-size-max", frame_size_max];
    if !case.is_routed {
        arguments.extend(["--bridge", "lan=left,right"]);
        arguments.extend([
            "--kernel-forwarding",
            if by_kernel { "true" } else { "false" },
        ]);
    }
    let switch = Switch::start(&net.middle, directory.path(), &ports, &arguments);
    // Data have congestion marks, also after a SYN that is lost.
    let settings = ["net.ipv4.tcp_ecn=1", "net.ipv4.tcp_ecn_fallback=0"];
    for host in [&net.left, &net.right] {
        run(host.command("sysctl").arg("-qw").args(settings));
    }
    let [to_v4, to_v6] = if case.is_routed {
        net.route(&switch, ["left", "right"], [mtu; 2]);
        [ROUTED_IPV4[1], ROUTED_IPV6[1]]
    } else {
        net.add_addresses();
        [IPV4[1], IPV6[1]]
    };
    ping(&net.left, to_v4);
    if by_kernel {
        until_forwarded(&net, &switch, "right");
    }
    let exchanges = [(to_v4, 5000), (to_v6, 5001)];
    let sniffers = exchanges.map(|(_, port)| Sniffer::start([&net.left, &net.right], port));
    for (to, port) in exchanges {
        exchange(&net, to, port);
    }
    for ((to, _), [left, right]) in zip(exchanges, Sniffer::end(sniffers)) {
        for is_from_server in [false, true] {
            let ends = [&left, &right].map(|end| direction(end, is_from_server));
            let [at_client, at_server] = &ends;
            let (sent, arrived) = match is_from_server {
                true => (at_server, at_client),
                false => (at_client, at_server),
            };
            let what = format!("{name} to {to}, from the server: {is_from_server}");
            compare(sent, arrived, &what);
            has_segment_size(arrived, to, mtu, &what);
            // Data that are sent again have none (RFC 3168, section 6.1.5).
            let is_marked = |piece: &Piece| piece.fields.4 & ECN != 0;
            assert!(arrived.pieces.iter().any(is_marked), "{what}: no mark");
        }
    }
    net.has_no_wrong_checksum();
    // Frames passed whole, cut or merged, as the case says.
    let port = switch.port("right");
    assert!(port[counter].as_u64() > Some(0), "{name}: {port}");
    if counter == "merged" {
        merges_to_the_right_only(&switch, name);
    }
    assert_eq!(switch.end(), Some(0));
}

/// Checks the counters of ports of which only the right one accepts large frames: its port merges segments of the left host, and the switch
/// segments frames of the right one.
fn merges_to_the_right_only(switch: &Switch, case: &str) {
    let [left, right] = ["left", "right"].map(|port| switch.port(port));
    // Fewer frames than segments.
    let whole = right["tx_tso_frames"].as_u64();
    assert!(
        whole > Some(0) && whole < right["merged"].as_u64(),
        "{case}: {right}"
    );
    assert_eq!(right["segmented"], 0, "{case}: {right}");
    assert!(left["segmented"].as_u64() > Some(0), "{case}: {left}");
    for counter in ["merged", "tx_tso_frames"] {
        assert_eq!(left[counter], 0, "{case} {counter}: {left}");
    }
    for port in [left, right] {
        assert_eq!(port["drops"]["not_segmented"], 0, "{case}: {port}");
    }
}
