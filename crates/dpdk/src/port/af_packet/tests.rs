// SPDX-License-Identifier: Apache-2.0
//! Tests of ports on veth pairs in separate namespaces. They require root.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use quietwire_packet::LargeFrame;

use super::*;
use crate::eal::Eal;
use crate::port::checksum;
use crate::segment::HeaderLengths;
use crate::testing::{self, in_a_namespace};

const TCP: LargeKind = LargeKind {
    is_ipv4: true,
    is_tcp: true,
    has_cwr: false,
};

const DEADLINE: Duration = Duration::from_secs(20);
/// Addresses of the peer's end (configured) and of a host behind the port (fictitious).
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {message}");
}

/// Runs a test in a thread with a separate network namespace: v0, for the port, and v1 with 10.0.0.1/24. Only the test sends
/// frames there.
fn in_a_network(test: impl FnOnce() + Send + 'static) {
    in_a_namespace(move || {
        run("ip link add v0 type veth peer name v1 address 02:00:00:00:00:01");
        for end in ["v0", "v1"] {
            run(&format!("ip link set {end} arp off addrgenmode none up"));
        }
        run("ip addr add 10.0.0.1/24 dev v1");
        run("ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 nud permanent dev v1");
        test();
    });
}

/// The other end of the cable: a plain packet socket.
struct Peer(PacketSocket);

impl Peer {
    fn new() -> Self {
        let index = if_nametoindex("v1").unwrap();
        let socket = PacketSocket::plain(index).unwrap();
        Self(socket)
    }

    fn send(&self, frame: &[u8]) {
        let fd = self.0.as_raw_fd();
        // SAFETY: an open socket and octets of the length that is given.
        let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(
            sent,
            frame.len().cast_signed(),
            "{}",
            io::Error::last_os_error()
        );
    }

    /// Receives a frame, if there is one.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 65536];
        let fd = self.0.as_raw_fd();
        // SAFETY: an open socket and space of the length that is given.
        let got = unsafe { libc::recv(fd, frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(got).ok()?);
        Some(frame)
    }

    /// Receives this number of frames.
    fn expect(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames are sent", || {
            frames.extend(self.receive());
            (frames.len() == count).then_some(())
        });
        frames
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::yield_now();
    }
}

struct Rig {
    rx: Vec<AfPacketRx>,
    tx: Vec<AfPacketTx>,
    interface: Interface,
    pool: Mempool,
    burst: Burst,
    /// Segment sizes of received frames.
    sizes: Vec<Option<u16>>,
    eal: Eal,
}

impl Rig {
    fn new(name: &str, queues: u16, frame_size_max: u16) -> Self {
        Self::with(name, queues, &PortOptions::new("p", frame_size_max))
    }

    fn with(name: &str, queues: u16, options: &PortOptions) -> Self {
        let eal = testing::eal();
        let pool = Mempool::new(&eal, name, 511, options.data_room()).unwrap();
        let (rx, tx, interface) = open(("v0", false), queues, options, &pool, &[]).unwrap();
        assert_eq!((rx.len(), tx.len()), (usize::from(queues), rx.len()));
        let burst = Burst::new(&eal);
        Self {
            rx,
            tx,
            interface,
            pool,
            burst,
            sizes: Vec::new(),
            eal,
        }
    }

    /// Receives exactly this number of frames of any queue, each with its queue.
    fn expect(&mut self, count: usize) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        until("frames arrive", || {
            self.look(&mut frames);
            (frames.len() >= count).then_some(())
        });
        self.look(&mut frames);
        assert_eq!(frames.len(), count);
        frames
    }

    fn look(&mut self, frames: &mut Vec<(usize, Vec<u8>)>) {
        for (queue, rx) in self.rx.iter_mut().enumerate() {
            let count = rx.receive(&mut self.burst, BURST_MAX);
            assert_eq!(count, self.burst.len());
            for frame in self.burst.drain() {
                let mut octets = vec![0; frame.length() as usize];
                assert!(frame.read_at(0, &mut octets));
                self.sizes.push(frame.segment_size());
                frames.push((queue, octets));
            }
        }
    }

    /// Sends frames through the first queue. Returns the number of frames sent.
    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        for frame in frames {
            let frame = crate::Mbuf::new(&self.eal, &self.pool, frame).unwrap();
            self.burst.push(frame).unwrap();
        }
        self.tx[0].send(&mut self.burst)
    }

    fn stats(&self) -> PortStats {
        self.interface.stats()
    }

    /// Returns a frame in buffers of the pool, whose sender requested segments of this size.
    fn chain(&self, octets: &[u8], size: u16) -> crate::Mbuf<'static> {
        let mut chunks = octets.chunks(2000).rev();
        let mut parts = 0;
        let mut next = ptr::null_mut();
        loop {
            let part = crate::Mbuf::new(&self.eal, &self.pool, chunks.next().unwrap()).unwrap();
            parts += 1;
            let mbuf = std::mem::ManuallyDrop::new(part).mbuf;
            // SAFETY: the buffers are owned, and belong to the first one's frame from here on.
            unsafe { *field::next(mbuf) = next };
            next = mbuf;
            if chunks.len() == 0 {
                break;
            }
        }
        // SAFETY: as above.
        unsafe {
            *field::nb_segs(next) = parts;
            *field::pkt_len(next) = octets.len() as u32;
        }
        let mut frame = crate::Mbuf::of_buffer(next);
        frame.set_segment_size(size);
        frame
    }

    fn is_whole(&self) -> bool {
        self.pool.available() == self.pool.count()
    }
}

/// Returns a frame with a local experimental EtherType.
fn frame(number: usize, length: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
    frame[..6].copy_from_slice(&PEER);
    frame[6..12].copy_from_slice(&FAR);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Returns an IPv4 packet with UDP's protocol number. `fragment` is the field of flags and offset.
fn packet(id: u16, fragment: u16, from: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&FAR[..], &PEER, &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0]);
    frame.extend(from);
    frame.extend([10, 0, 0, 2]);
    assert!(checksum::complete(&mut frame, 14, 10));
    frame.extend(payload);
    frame
}

#[test]
fn frames_pass_both_ways_unchanged() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("both-ways", 1, 1518));
        assert!(rig.interface.link_is_up());
        assert_eq!(rig.interface.mtu(), Some(1500));
        assert_ne!(rig.interface.mac_address(), [0; 6]);
        assert_eq!(rig.interface.ring_sizes(), (Some(1024), Some(1024)));
        let frames: Vec<_> = (14..=1514).map(|n| frame(n, n)).collect();
        let mut octets = 0;
        for some in frames.chunks(50) {
            some.iter().for_each(|frame| peer.send(frame));
            octets += some.iter().map(Vec::len).sum::<usize>() as u64;
            let got = rig.expect(some.len());
            assert!(got.iter().map(|(_, frame)| frame).eq(some));
            assert_eq!(rig.send(some), some.len());
            assert!(rig.burst.is_empty());
            assert_eq!(peer.expect(some.len()), some);
        }
        let count = frames.len() as u64;
        let expected = PortStats {
            rx_frames: count,
            tx_frames: count,
            rx_octets: octets,
            tx_octets: octets,
            ..PortStats::default()
        };
        assert_eq!(rig.stats(), expected);
        let extended = rig.interface.extended_stats();
        assert!(extended.contains(&("rx_q0_packets".to_owned(), count)));
        assert!(extended.contains(&("tx_q0_bytes".to_owned(), octets)));
        assert_eq!(extended.len(), 4, "{extended:?}");
        assert!(rig.is_whole());
    });
}

#[test]
fn fragments_stay_fragments() {
    in_a_network(|| {
        let mut rig = Rig::new("fragments", 2, 1518);
        // The kernel fragments a datagram of 4,000 octets.
        let socket = UdpSocket::bind("10.0.0.1:1000").unwrap();
        socket.send_to(&[0x5a; 4000], "10.0.0.2:2000").unwrap();
        let frames = rig.expect(3);
        let lengths: Vec<_> = frames.iter().map(|(_, frame)| frame.len()).collect();
        assert_eq!(lengths, [1514, 1514, 14 + 20 + 4008 - 2 * 1480]);
        let fields: Vec<_> = frames.iter().map(|(_, frame)| &frame[20..22]).collect();
        assert_eq!(fields, [[0x20, 0], [0x20, 185], [0x01, 114]]);
        assert!(frames.iter().all(|(queue, _)| *queue == frames[0].0));
        // A single fragment, a last one and a first one.
        let peer = Peer::new();
        for (id, fragment) in [(1, 185), (2, 0x2000)] {
            let lone = packet(id, fragment, [10, 0, 0, 1], &[7; 1480]);
            peer.send(&lone);
            assert_eq!(rig.expect(1)[0].1, lone);
        }
        assert_eq!(rig.stats().rx_frames, 5);
        assert_eq!(
            rig.stats().rx_octets,
            1514 * 2 + 1082 + 1514 * 2,
            "what was sent"
        );
    });
}

#[test]
fn two_queues_share_flows_and_keep_each_whole() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("two-queues", 2, 1518));
        let mut of_host = Vec::new();
        for host in 1..=60 {
            let mut queues = Vec::new();
            // Fragments of three datagrams, in turn.
            for (fragment, length) in [(0x2000, 1480), (0x2000 + 185, 1480), (370, 200)] {
                for id in 0..3 {
                    let payload = vec![host; length];
                    peer.send(&packet(id, fragment, [10, 0, 1, host], &payload));
                }
                queues.extend(rig.expect(3).iter().map(|(queue, _)| *queue));
            }
            assert!(queues.iter().all(|queue| *queue == queues[0]), "{queues:?}");
            of_host.push(queues[0]);
        }
        assert!(of_host.contains(&0) && of_host.contains(&1), "{of_host:?}");
        let of_port = |port: u16, rig: &mut Rig| {
            let ports = [port.to_be_bytes(), 53u16.to_be_bytes()].concat();
            let payload = [&ports[..], &[0, 8, 0, 0]].concat();
            peer.send(&packet(9, 0, [10, 0, 0, 1], &payload));
            rig.expect(1)[0].0
        };
        let queues: Vec<_> = (1000..1060).map(|port| of_port(port, &mut rig)).collect();
        assert!(queues.contains(&0) && queues.contains(&1), "{queues:?}");
        let again: Vec<_> = (1000..1060).map(|port| of_port(port, &mut rig)).collect();
        assert_eq!(queues, again);
    });
}

#[test]
fn tags_arrive_with_their_frames() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("tags", 1, 1518));
        let with = |tags: &[u8], length: usize| {
            let plain = frame(0, length);
            [&plain[..12], tags, &plain[12..]].concat()
        };
        for tagged in [
            with(&[0x81, 0, 0x60, 5], 60),
            with(&[0x81, 0, 0, 0], 100),
            with(&[0x88, 0xa8, 0, 9], 100),
            with(&[0x81, 0, 0x0f, 0xfe], 1514),
            with(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7], 400),
        ] {
            peer.send(&tagged);
            assert_eq!(rig.expect(1)[0].1, tagged);
            assert_eq!(rig.send(std::slice::from_ref(&tagged)), 1);
        }
        assert_eq!(rig.stats().tx_frames, 5);
    });
}

#[test]
fn frames_that_are_too_long_are_dropped_and_counted() {
    in_a_network(|| {
        run("ip link set v0 mtu 9000");
        run("ip link set v1 mtu 9000");
        let (peer, mut rig) = (Peer::new(), Rig::new("too-long", 1, 1518));
        for (number, length) in [1515, 1600, 2000, 9014].into_iter().enumerate() {
            peer.send(&frame(0, length));
            peer.send(&frame(1, 1514));
            assert_eq!(rig.expect(1)[0].1, frame(1, 1514));
            assert_eq!(rig.stats().rx_errors, number as u64 + 1);
        }
        assert_eq!(rig.stats().rx_frames, 4);
        assert!(rig.is_whole());
        // In the other direction, the interface's limit applies: all other frames of the burst are sent.
        run("ip link set v0 mtu 1500");
        rig.burst.free();
        let tagged = [
            &frame(1, 1514)[..12],
            &[0x81, 0, 0, 1, 0x88, 0xb5],
            &[9; 1500],
        ]
        .concat();
        let burst = [frame(0, 100), frame(0, 1515), tagged, frame(1, 1514)];
        assert_eq!(rig.send(&burst), 3);
        let got = peer.expect(3);
        assert_eq!((&got[0], &got[2]), (&burst[0], &burst[3]));
        let stats = rig.stats();
        assert_eq!((stats.tx_frames, stats.tx_errors), (3, 1));
        assert_eq!(stats.tx_octets, 100 + 1518 + 1514);
        assert!(rig.burst.is_empty() && rig.is_whole());
    });
}

#[test]
fn an_interface_that_is_down_takes_nothing() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("down", 1, 1518));
        let frames: Vec<_> = (0..40).map(|n| frame(n, 100)).collect();
        let mut errors = 0;
        // The interface first has no carrier, then it is down.
        for end in ["v1", "v0"] {
            run(&format!("ip link set {end} down"));
            until("the link is down", || {
                (!rig.interface.link_is_up()).then_some(())
            });
            for _ in 0..50 {
                assert_eq!(rig.send(&frames), 0);
                assert!(rig.burst.is_empty() && rig.is_whole());
                errors += 40;
            }
            assert_eq!((rig.stats().tx_frames, rig.stats().tx_errors), (0, errors));
            run(&format!("ip link set {end} up"));
        }
        until("the link is up", || {
            rig.interface.link_is_up().then_some(())
        });
        // No earlier frame is sent, and frames pass in both directions again.
        while peer.receive().is_some() {}
        assert_eq!(rig.send(&frames), 40);
        assert_eq!(peer.expect(40), frames);
        peer.send(&frames[7]);
        assert_eq!(rig.expect(1)[0].1, frames[7]);
        assert_eq!((rig.stats().tx_frames, rig.stats().tx_errors), (40, errors));
        // The interface is deleted. Another interface with its name does not belong to this port.
        run("ip link del v0");
        run("ip link add v0 type veth peer name v1");
        run("ip link set v0 up");
        run("ip link set v1 up");
        assert!(!rig.interface.link_is_up());
        assert_eq!((rig.interface.mtu(), rig.send(&frames)), (None, 0));
        assert_eq!(rig.stats().tx_errors, errors + 40);
        assert_eq!(rig.rx[0].receive(&mut rig.burst, BURST_MAX), 0);
        assert!(rig.is_whole());
    });
}

/// Returns the sum of a pseudo header and the data after it. It is all ones with a correct checksum.
fn is_right(frame: &[u8]) -> bool {
    let data = &frame[34..];
    let mut all = [&frame[26..34], &[0, frame[23]]].concat();
    all.extend((data.len() as u16).to_be_bytes());
    all.extend(data);
    // The field of a checksum follows, whose result is the complement of the sum.
    all.resize(all.len().next_multiple_of(2), 0);
    let at = all.len();
    all.extend([0, 0]);
    assert!(checksum::complete(&mut all, 0, at));
    all[at..] == [0, 0]
}

#[test]
fn the_kernels_checksums_are_complete() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("checksums", 1, 1518));
        let address: SocketAddr = "10.0.0.2:80".parse().unwrap();
        // There is no server, so only a SYN is sent.
        let nobody = TcpStream::connect_timeout(&address, Duration::from_millis(20));
        assert!(nobody.is_err());
        let syn = rig.expect(1).remove(0).1;
        assert_eq!((syn[23], syn[47] & 0x3f), (6, 2));
        assert!(is_right(&syn));
        let udp = UdpSocket::bind("10.0.0.1:1000").unwrap();
        for length in [0, 1, 2, 3, 999, 1472] {
            udp.send_to(&vec![0xa7; length], "10.0.0.2:2000").unwrap();
            let datagram = rig.expect(1).remove(0).1;
            assert_eq!(datagram.len(), 42 + length);
            assert!(is_right(&datagram));
        }
        // The kernel left the checksums incomplete, as another socket shows.
        let raw = Peer(PacketSocket::plain(if_nametoindex("v0").unwrap()).unwrap());
        udp.send_to(&[0xa7; 100], "10.0.0.2:2000").unwrap();
        let incomplete = until("a datagram", || raw.receive());
        let complete = rig.expect(1).remove(0).1;
        assert!(!is_right(&incomplete) && is_right(&complete));
        assert_eq!(incomplete[42..], complete[42..]);
        // A complete but wrong checksum stays wrong.
        let mut wrong = complete;
        wrong[40] ^= 0xff;
        peer.send(&wrong);
        assert_eq!(rig.expect(1)[0].1, wrong);
    });
}

/// Returns a socket whose data the network card cuts into datagrams of this size (udp(7), UDP_SEGMENT).
fn segmenting_socket(address: &str, size: i32) -> UdpSocket {
    let udp = UdpSocket::bind(address).unwrap();
    // SAFETY: an open socket and a value of the size that is given.
    let code = unsafe {
        libc::setsockopt(
            udp.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            4,
        )
    };
    assert_eq!(code, 0);
    udp
}

#[test]
fn datagrams_of_one_call_come_together_and_with_their_size() {
    in_a_network(|| {
        let mut rig = Rig::new("datagrams", 1, 1518);
        let data: Vec<u8> = (0..60_000).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut octets = 0;
        // In a slot, and longer than a slot.
        for length in [1400, 3000, 60_000] {
            let udp = segmenting_socket("10.0.0.1:0", 1000);
            udp.send_to(&data[..length], "10.0.0.2:2000").unwrap();
            let frame = rig.expect(1).remove(0).1;
            assert_eq!(frame[..14], [&FAR[..], &PEER, &[8, 0]].concat());
            assert_eq!(frame.len(), 42 + length);
            assert_eq!(frame[42..], data[..length]);
            octets += frame.len() as u64;
            assert_eq!(rig.sizes.pop().unwrap(), Some(1000));
            assert!(rig.is_whole());
        }
        UdpSocket::bind("10.0.0.1:0")
            .unwrap()
            .send_to(&[2; 100], "10.0.0.2:2000")
            .unwrap();
        assert_eq!(rig.expect(1)[0].1.len(), 142);
        assert_eq!(rig.sizes.pop().unwrap(), None);
        let expected = PortStats {
            rx_frames: 4,
            rx_octets: octets + 142,
            ..PortStats::default()
        };
        assert_eq!(rig.stats(), expected);
    });
}

/// Sends a frame with UDP data in one piece, which the device is to cut into datagrams of `size` octets.
fn send_datagrams(socket: &PacketSocket, tags: &[u8], size: u16, data: &[u8]) -> Vec<u8> {
    let mut udp = [4711u16, 53, 8 + data.len() as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    udp.extend(data);
    let untagged = packet(7, 0, [10, 0, 0, 1], &udp);
    let frame = [&untagged[..12], tags, &untagged[12..]].concat();
    let start = (34 + tags.len()) as u16;
    // Flags and type (VIRTIO_NET_HDR_GSO_UDP_L4) of a virtio_net_hdr, length of the headers, size, and place of the checksum.
    let mut header = vec![1, 5];
    for word in [start + 8, size, start, 6] {
        header.extend(word.to_ne_bytes());
    }
    let pieces = [io::IoSlice::new(&header), io::IoSlice::new(&frame)];
    assert_eq!(socket.write(&pieces), Ok(header.len() + frame.len()));
    frame
}

#[test]
fn long_frames_have_their_tags() {
    in_a_network(|| {
        let mut rig = Rig::new("long-tags", 1, 1518);
        let peer = PacketSocket::whole_sender(if_nametoindex("v1").unwrap()).unwrap();
        for tags in [
            &[][..],
            &[0x81, 0, 0x60, 5],
            &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7],
        ] {
            for length in [800, 3000, 20_000] {
                let sent = send_datagrams(&peer, tags, 400, &vec![7; length]);
                let received = rig.expect(1).remove(0).1;
                assert!(received == sent, "{tags:?} {length}");
                assert_eq!(rig.sizes.pop().unwrap(), Some(400));
            }
        }
        assert_eq!((rig.stats().rx_frames, rig.stats().rx_errors), (9, 0));
    });
}

#[test]
fn long_frames_without_buffers_are_dropped_and_counted() {
    in_a_network(|| {
        let mut rig = Rig::new("long-buffers", 1, 1518);
        rig.rx[0].large_pool = None;
        let mut held = Vec::new();
        while rig.pool.available() > 20 {
            let mut burst = Burst::new(&rig.eal);
            let count = (rig.pool.available() as usize - 20).min(BURST_MAX);
            assert!(burst.allocate(&rig.pool, count));
            held.push(burst);
        }
        let udp = segmenting_socket("10.0.0.1:0", 1000);
        udp.send_to(&[1; 60_000], "10.0.0.2:2000").unwrap();
        udp.send_to(&[2; 20_000], "10.0.0.2:2000").unwrap();
        assert_eq!(rig.expect(1)[0].1.len(), 20_042);
        let stats = rig.stats();
        assert_eq!((stats.rx_frames, stats.rx_no_buffers), (1, 1));
        drop(held);
        assert!(rig.is_whole());
    });
}

#[test]
fn long_frames_are_in_a_large_buffer_while_there_is_one() {
    in_a_network(|| {
        let mut rig = Rig::new("long-large", 1, 1518);
        let large = Mempool::uncached(&rig.eal, "only-large", 1, 64_000).unwrap();
        rig.rx[0].large_pool = Some(Arc::new(large.clone()));
        let peer = PacketSocket::whole_sender(if_nametoindex("v1").unwrap()).unwrap();
        let several = 60_042_u32.div_ceil(rig.pool.data_room().into());
        let mut bursts = [Burst::new(&rig.eal), Burst::new(&rig.eal)];
        let (mut sent, mut held) = (Vec::new(), 0);
        for (burst, taken) in bursts.iter_mut().zip([1, several]) {
            sent = send_datagrams(&peer, &[], 1000, &[7; 60_000]);
            until("a frame arrives", || {
                (rig.rx[0].receive(burst, BURST_MAX) == 1).then_some(())
            });
            held += taken;
            assert_eq!(rig.pool.available(), rig.pool.count() - held);
            assert_eq!(large.available(), 0);
        }
        for frame in bursts.iter_mut().flat_map(Burst::drain) {
            let mut octets = vec![0; frame.length() as usize];
            assert!(frame.read_at(0, &mut octets) && octets == sent);
        }
        assert!(rig.is_whole() && large.available() == 1);
    });
}

#[test]
fn tcp_data_of_any_length_go_out_whole_and_in_order() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("whole", 1, 1518));
        for is_ipv4 in [true, false] {
            let kind = LargeKind { is_ipv4, ..TCP };
            assert!(rig.tx[0].accepts_whole(kind, 65_535));
            assert!(!rig.tx[0].accepts_whole(kind, 65_536));
        }
        let reduced = LargeKind {
            has_cwr: true,
            ..TCP
        };
        assert!(!rig.tx[0].accepts_whole(reduced, 65_535));
        let lengths = HeaderLengths {
            ethernet: 14,
            network: 20,
            transport: 20,
        };
        let mut expected = Vec::new();
        for (number, length) in [60_000, 100, 3000].into_iter().enumerate() {
            let mut tcp: Vec<u8> = vec![0; 20 + length];
            tcp[12] = 0x50;
            tcp[20..].fill(number as u8);
            let mut whole = packet(7, 0, [10, 0, 0, 9], &tcp);
            whole[23] = 6;
            if length == 100 {
                let short = crate::Mbuf::new(&rig.eal, &rig.pool, &whole).unwrap();
                rig.burst.push(short).unwrap();
            } else {
                let frame = rig.chain(&whole, 1448);
                let frame = frame.request_segments(lengths, TCP, 0x1234).unwrap();
                rig.burst.push(frame).unwrap();
                whole[50..52].copy_from_slice(&[0x12, 0x34]);
            }
            expected.push(whole);
        }
        let octets: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(rig.send(&[]), 3);
        let got = peer.expect(3);
        let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&got), lengths(&expected));
        assert!(got == expected);
        let stats = rig.stats();
        assert_eq!((stats.tx_frames, stats.tx_octets), (3, octets as u64));
        assert_eq!((stats.tx_errors, rig.is_whole()), (0, true));
        // Refused frames are counted: without a carrier, and without the interface.
        for command in ["ip link set v1 down", "ip link del v0"] {
            run(command);
            let mut whole = packet(7, 0, [10, 0, 0, 9], &[0; 3020]);
            whole[23] = 6;
            let lengths = HeaderLengths {
                ethernet: 14,
                network: 20,
                transport: 20,
            };
            let frame = rig.chain(&whole, 1448).request_segments(lengths, TCP, 0);
            rig.burst.push(frame.unwrap()).unwrap();
            assert_eq!(rig.send(&[]), 0);
            assert!(rig.burst.is_empty() && rig.is_whole());
        }
        assert_eq!(rig.stats().tx_errors, 2);
    });
}

#[test]
fn datagrams_go_out_whole_and_arrive_one_by_one() {
    in_a_network(|| {
        let kind = LargeKind {
            is_tcp: false,
            ..TCP
        };
        let mut rig = Rig::new("whole-udp", 1, 1518);
        // Requires Linux 6.5.
        assert!(rig.tx[0].accepts_whole(kind, 65_535));
        assert!(!rig.tx[0].accepts_whole(kind, 65_536));
        let receiver = UdpSocket::bind("10.0.0.1:2000").unwrap();
        receiver.set_read_timeout(Some(DEADLINE)).unwrap();
        let data: Vec<u8> = (0..60_000).map(|at| (at * 7 + at / 256) as u8).collect();
        for (length, size) in [(60_000, 1400), (1000, 500), (3100, 1000)] {
            let mut udp = [4711u16, 2000, 8 + length as u16, 0]
                .map(u16::to_be_bytes)
                .concat();
            udp.extend(&data[..length]);
            let mut whole = packet(7, 0, [10, 0, 0, 1], &udp);
            // To the peer's end instead of from it. The sum over the header stays.
            whole[..12].rotate_left(6);
            whole[26..34].rotate_left(4);
            let headers = LargeFrame::read(&whole[..42], whole.len()).unwrap();
            let lengths = HeaderLengths {
                ethernet: headers.ethernet_length(),
                network: headers.network_length(),
                transport: headers.transport_length(),
            };
            let sum = headers.partial_checksum().unwrap();
            let frame = rig.chain(&whole, size);
            let frame = frame.request_segments(lengths, kind, sum).unwrap();
            rig.burst.push(frame).unwrap();
            assert_eq!(rig.send(&[]), 1);
            let mut got: Vec<u8> = Vec::new();
            while got.len() < length {
                let mut datagram = [0; 2000];
                let count = receiver.recv(&mut datagram).unwrap();
                assert_eq!(count, usize::from(size).min(length - got.len()));
                got.extend(&datagram[..count]);
            }
            assert!(got == data[..length]);
        }
        let stats = rig.stats();
        assert_eq!((stats.tx_frames, stats.tx_errors), (3, 0));
        assert!(rig.is_whole());
    });
}

#[test]
fn frames_that_a_full_ring_misses_are_counted() {
    in_a_network(|| {
        let mut options = PortOptions::new("p", 1518);
        options.rx_ring_size = 32;
        let (peer, mut rig) = (Peer::new(), Rig::with("missed", 1, &options));
        for number in 0..100 {
            peer.send(&frame(number, 100));
        }
        until("all have come or are lost", || {
            (rig.stats().rx_missed == 68).then_some(())
        });
        let frames = rig.expect(32);
        let sent = (0..32).map(|number| (0, frame(number, 100)));
        assert!(frames.into_iter().eq(sent));
        peer.send(&frame(7, 60));
        assert_eq!(rig.expect(1)[0].1, frame(7, 60));
        let stats = rig.stats();
        assert_eq!((stats.rx_frames, stats.rx_missed), (33, 68));
    });
}

#[test]
fn without_buffers_frames_are_dropped_and_counted() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("buffers", 1, 1518));
        let mut held = Vec::new();
        // All buffers but three are in use.
        while rig.pool.available() > 3 {
            let mut burst = Burst::new(&rig.eal);
            let count = (rig.pool.available() as usize - 3).min(BURST_MAX);
            assert!(burst.allocate(&rig.pool, count));
            held.push(burst);
        }
        for number in 0..8 {
            peer.send(&frame(number, 100));
        }
        until("all have come", || {
            (rig.rx[0].ring.received(64) == 8).then_some(())
        });
        // Half of eight is more than three, so two frames are received and the others wait.
        assert_eq!(rig.rx[0].receive(&mut rig.burst, 64), 2);
        let mut second = Burst::new(&rig.eal);
        assert_eq!(rig.rx[0].receive(&mut second, 64), 1);
        let mut third = Burst::new(&rig.eal);
        assert_eq!(rig.rx[0].receive(&mut third, 64), 0);
        assert_eq!(rig.stats().rx_no_buffers, 5);
        assert_eq!(second.frames().next().unwrap(), frame(2, 100));
        drop((held, second));
        rig.burst.free();
        peer.send(&frame(9, 100));
        assert_eq!(rig.expect(1)[0].1, frame(9, 100));
        assert!(rig.is_whole());
    });
}

#[test]
fn frames_of_several_segments_go_out_whole_and_unfit_ones_are_dropped() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("segments", 1, 1518));
        let whole = frame(3, 600);
        let mut parts: Vec<_> = [&whole[..5], &whole[5..300], &whole[300..]]
            .iter()
            .map(|part| {
                let part = crate::Mbuf::new(&rig.eal, &rig.pool, part).unwrap();
                std::mem::ManuallyDrop::new(part).mbuf
            })
            .collect();
        // SAFETY: the buffers are owned, and belong to the first one's frame from here on.
        unsafe {
            *field::next(parts[0]) = parts[1];
            *field::next(parts[1]) = parts[2];
            *field::nb_segs(parts[0]) = 3;
            *field::pkt_len(parts[0]) = 600;
        }
        rig.burst.append_raw(parts.drain(..1));
        // Longer than the interface allows, and shorter than a header.
        let long = crate::Mbuf::empty(&rig.pool, 2000).unwrap();
        rig.burst.push(long).unwrap();
        let short = crate::Mbuf::empty(&rig.pool, 13).unwrap();
        rig.burst.push(short).unwrap();
        assert_eq!(rig.send(&[frame(4, 60)]), 2);
        assert_eq!(peer.expect(2), [whole, frame(4, 60)]);
        let stats = rig.stats();
        assert_eq!((stats.tx_frames, stats.tx_errors), (2, 2));
        assert!(rig.burst.is_empty() && rig.is_whole());
    });
}

#[test]
fn only_pairs_lose_frames_at_their_other_end() {
    in_a_network(|| {
        assert!(Rig::new("pair", 1, 1518).interface.is_pair());
        run("ip tuntap add mode tap name d0");
        run("ip link set d0 up");
        let eal = testing::eal();
        let pool = Mempool::new(&eal, "no-pair", 511, 2048).unwrap();
        let options = PortOptions::new("p", 1518);
        let (_, _, interface) = open(("d0", false), 1, &options, &pool, &[]).unwrap();
        assert!(!interface.is_pair());
    });
}

#[test]
fn sent_frames_are_not_received_again() {
    in_a_network(|| {
        let (peer, mut rig) = (Peer::new(), Rig::new("own", 2, 1518));
        // Through the port, and through others on the same interface.
        assert_eq!(rig.send(&[frame(1, 60)]), 1);
        let other = Peer(PacketSocket::plain(if_nametoindex("v0").unwrap()).unwrap());
        other.send(&frame(2, 60));
        assert_eq!(peer.expect(2), [frame(1, 60), frame(2, 60)]);
        peer.send(&frame(3, 60));
        assert_eq!(rig.expect(1)[0].1, frame(3, 60));
    });
}

#[test]
fn a_port_needs_an_ethernet_interface() {
    in_a_network(|| {
        let pool = Mempool::new(&testing::eal(), "needs", 511, 2048).unwrap();
        let options = PortOptions::new("p", 1518);
        let message = |interface: &str| {
            let error = open((interface, false), 1, &options, &pool, &[]).unwrap_err();
            error.to_string()
        };
        assert!(message("v7").contains("af-packet:v7"), "{}", message("v7"));
        run("ip tuntap add mode tun name g0");
        assert!(message("g0").contains("Ethernet"), "{}", message("g0"));
        // Any number of ports can share an interface, and none of them leaves anything behind.
        for _ in 0..8 {
            drop(open(("v0", false), 4, &options, &pool, &[]).unwrap());
        }
    });
}

#[test]
fn a_port_takes_rings_of_the_stock_and_none_of_the_frames_before() {
    in_a_network(|| {
        let peer = Peer::new();
        let stock = stock::RingStock::default();
        let options = PortOptions {
            ring_stock: Some(stock.clone()),
            ..PortOptions::new("p", 1518)
        };
        let filled = || {
            until("the stock is filled", || {
                stock.settled_fds().filter(|fds| fds.len() == 2)
            })
        };
        let receiver = |rig: &Rig| rig.interface.queues[0].receiver.as_raw_fd();
        // The first port finds an empty stock.
        let first = Rig::with("stock-first", 1, &options);
        let kept = filled();
        drop(first);
        peer.send(&frame(0, 60));
        let mut rig = Rig::with("stock-second", 1, &options);
        assert!(kept.contains(&receiver(&rig)), "{kept:?}");
        let kept = filled();
        let frames: Vec<_> = (60..110).map(|length| frame(length, length)).collect();
        frames.iter().for_each(|frame| peer.send(frame));
        let got = rig.expect(frames.len());
        assert!(got.iter().map(|(_, frame)| frame).eq(&frames));
        assert_eq!(rig.send(&frames), frames.len());
        assert_eq!(peer.expect(frames.len()), frames);
        // Rings of another size are none of the stock, which has rings of this size from then on.
        let options = PortOptions {
            rx_ring_size: 512,
            ..options.clone()
        };
        let other = Rig::with("stock-other", 1, &options);
        assert_eq!(other.interface.ring_sizes(), (Some(512), Some(1024)));
        assert!(!kept.contains(&receiver(&other)), "{kept:?}");
        let kept = filled();
        let queues = Rig::with("stock-queues", 2, &options);
        assert!(kept.contains(&receiver(&queues)), "{kept:?}");
    });
}
