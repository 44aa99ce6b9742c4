// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use proptest::prelude::*;
use quietwire_packet::checksum;
use quietwire_vhost::ring::header::{
    FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP, GSO_UDP_L4, HEADER_LEN, OffloadHeader,
};

use super::*;
use crate::burst::Mbuf;
use crate::segment::{HeaderLengths, LargeKind};
use crate::testing::{self, in_a_namespace, spawn_in_namespace};

/// Octets of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 14 + 20 + 20;
/// Octets of the longest frame without segmentation.
const LIMIT: u32 = 1522;

/// A queue whose other end is the test.
struct Rig {
    receiver: Receiver,
    sender: Sender,
    kernel: OwnedFd,
    eal: Eal,
    pool: Mempool,
}

impl Rig {
    fn new(name: &str) -> Self {
        let eal = testing::eal();
        let options = PortOptions::new(name, 1518);
        let pool = Mempool::new(&eal, name, 1023, options.data_room()).unwrap();
        let (own, kernel) = socketpair(
            AddressFamily::Unix,
            SockType::Datagram,
            None,
            SockFlag::SOCK_NONBLOCK,
        )
        .unwrap();
        for end in [&own, &kernel] {
            setsockopt(end, sockopt::SndBuf, &(1 << 20)).unwrap();
        }
        let file = Arc::new(TapFile::from(own));
        let limit = length_max(&options);
        assert_eq!(limit, LIMIT);
        let large_pool = stock::large_pool(&eal, 1).unwrap();
        Self {
            receiver: Receiver {
                file: Arc::clone(&file),
                stock: Stock::new(&pool, &large_pool),
                pace: Pace::new(0),
                limit,
                counters: Arc::default(),
                _interrupt: None,
            },
            sender: Sender {
                file,
                limit,
                has_uso: true,
                counters: Arc::default(),
            },
            kernel,
            eal,
            pool,
        }
    }

    /// Sends a frame like the kernel.
    fn give(&self, header: OffloadHeader, frame: &[u8]) {
        let octets = [&header.encode()[..], frame].concat();
        assert_eq!(nix::unistd::write(&self.kernel, &octets), Ok(octets.len()));
    }

    /// Reads a frame like the kernel.
    fn taken(&self) -> Option<(OffloadHeader, Vec<u8>)> {
        let mut octets = vec![0; 1 << 17];
        let length = nix::unistd::read(&self.kernel, &mut octets).ok()?;
        let (header, frame) = octets[..length].split_first_chunk::<HEADER_LEN>().unwrap();
        Some((OffloadHeader::parse(header), frame.to_vec()))
    }

    /// Receives until there is no frame.
    fn received(&mut self) -> Vec<(Vec<u8>, Option<u16>)> {
        let mut burst = Burst::new(&self.eal);
        let mut all = Vec::new();
        while self.receiver.receive(&mut burst, 7) > 0 {
            for frame in burst.drain() {
                let mut octets = vec![0; frame.length() as usize];
                assert!(frame.read_at(0, &mut octets));
                all.push((octets, frame.segment_size()));
            }
        }
        all
    }

    /// Returns the counts of refused frames: malformed and too long.
    fn refused(&self) -> (u64, u64) {
        let counters = &self.receiver.counters;
        (counters.malformed.get(), counters.too_long.get())
    }
}

/// Returns a frame of TCP data over IPv4, with any checksums.
fn tcp(data: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..HEADERS + data).map(|at| (at % 251) as u8).collect();
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + data) as u16).to_be_bytes());
    frame[20..22].fill(0);
    frame[23] = 6;
    frame[46] = 0x50;
    frame[47] = 0x10;
    frame
}

/// Returns the header that leaves the checksum to the receiver, and the segmentation if there is a size.
fn header(gso_type: u8, gso_size: u16) -> OffloadHeader {
    OffloadHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type,
        hdr_len: HEADERS as u16,
        gso_size,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    }
}

#[test]
fn frames_are_read_and_written_as_they_are() {
    let mut rig = Rig::new("tap-plain");
    assert_eq!(rig.received(), []);
    let frames: Vec<Vec<u8>> = [14, 60, 1514, 1522].map(|length| vec![7; length]).into();
    for frame in &frames {
        rig.give(OffloadHeader::default(), frame);
    }
    let received = rig.received();
    let expected: Vec<_> = frames.iter().map(|frame| (frame.clone(), None)).collect();
    assert!(received == expected);
    assert_eq!(rig.receiver.counters.frames.get(), 4);
    assert_eq!(rig.receiver.counters.octets.get(), 14 + 60 + 1514 + 1522);
    let mut burst = Burst::new(&rig.eal);
    for frame in &frames {
        let mbuf = Mbuf::new(&rig.eal, &rig.pool, frame).unwrap();
        burst.push(mbuf).unwrap();
    }
    assert_eq!(rig.sender.send(&mut burst), 4);
    for frame in frames {
        assert_eq!(rig.taken(), Some((OffloadHeader::default(), frame)));
    }
    assert_eq!(rig.taken(), None);
}

#[test]
fn a_checksum_that_the_kernel_left_out_is_completed() {
    let mut rig = Rig::new("tap-sum");
    let frame = tcp(1000);
    rig.give(header(0, 0), &frame);
    // A frame that is not longer than others is complete, even if the kernel would have cut it.
    rig.give(header(GSO_TCPV4, 900), &frame);
    let mut expected = frame;
    let sum = checksum(&expected[34..]);
    expected[50..52].copy_from_slice(&sum.to_be_bytes());
    let received = rig.received();
    assert_eq!(received, vec![(expected, None); 2]);
    assert_eq!(rig.refused(), (0, 0));
}

#[test]
fn frames_to_be_cut_stay_whole_with_their_request() {
    let mut rig = Rig::new("tap-tso");
    // One octet more than fits the first buffer, and the most that IPv4 can have.
    for data in [2048 - HEADERS + 1, 20_000, 65_535 - 40] {
        let frame = tcp(data);
        rig.give(header(GSO_TCPV4, 1448), &frame);
        rig.give(OffloadHeader::default(), &frame[..60]);
        let received = rig.received();
        assert!(received == [(frame.clone(), Some(1448)), (frame[..60].to_vec(), None)]);
        // The same way back.
        rig.give(header(GSO_TCPV4, 1448), &frame);
        let mut burst = Burst::new(&rig.eal);
        assert_eq!(rig.receiver.receive(&mut burst, 1), 1);
        let mut drained = burst.drain();
        let mbuf = drained.next().unwrap();
        let lengths = HeaderLengths {
            ethernet: 14,
            network: 20,
            transport: 20,
        };
        let kind = LargeKind {
            is_ipv4: true,
            is_tcp: true,
            has_cwr: false,
        };
        let mbuf = mbuf.request_segments(lengths, kind, 0x1234).unwrap();
        let mut out = Burst::new(&rig.eal);
        out.push(mbuf).unwrap();
        assert_eq!(rig.sender.send(&mut out), 1);
        let mut expected = frame;
        expected[50..52].copy_from_slice(&[0x12, 0x34]);
        let (written, octets) = rig.taken().unwrap();
        assert_eq!(written, header(GSO_TCPV4, 1448));
        assert!(octets == expected);
    }
    assert_eq!(rig.refused(), (0, 0));
}

#[test]
fn long_frames_are_received_in_short_bursts() {
    let mut rig = Rig::new("tap-bursts");
    let frame = tcp(65_535 - 40);
    let expected = RECEIVED_OCTETS_MAX.div_ceil(frame.len() as u64) as usize;
    for _ in 0..=expected {
        rig.give(header(GSO_TCPV4, 1448), &frame);
    }
    let mut burst = Burst::new(&rig.eal);
    for count in [expected, 1, 0] {
        assert_eq!(rig.receiver.receive(&mut burst, BURST_MAX), count);
        burst.free();
    }
    assert_eq!(rig.refused(), (0, 0));
}

#[test]
fn datagrams_in_one_frame_and_reduced_windows_are_passed_on() {
    let mut rig = Rig::new("tap-uso");
    let udp = OffloadHeader {
        csum_offset: 6,
        hdr_len: 42,
        ..header(GSO_UDP_L4, 500)
    };
    let mut reduced = tcp(5000);
    reduced[47] |= 0x80;
    let ecn = header(GSO_TCPV4 | GSO_ECN, 1448);
    for (header, frame, transport) in [(udp, tcp(1200), 8), (udp, tcp(9000), 8), (ecn, reduced, 20)]
    {
        rig.give(header, &frame);
        let mut burst = Burst::new(&rig.eal);
        assert_eq!(rig.receiver.receive(&mut burst, 1), 1);
        let mut drained = burst.drain();
        let mbuf = drained.next().unwrap();
        assert_eq!(mbuf.segment_size(), Some(header.gso_size));
        let kind = LargeKind {
            is_ipv4: true,
            is_tcp: transport == 20,
            has_cwr: transport == 20,
        };
        assert!(rig.sender.accepts_whole(kind));
        let lengths = HeaderLengths {
            ethernet: 14,
            network: 20,
            transport,
        };
        let mbuf = mbuf.request_segments(lengths, kind, 0x1234).unwrap();
        let mut out = Burst::new(&rig.eal);
        out.push(mbuf).unwrap();
        assert_eq!(rig.sender.send(&mut out), 1);
        let mut expected = frame;
        let at = 34 + usize::from(header.csum_offset);
        expected[at..at + 2].copy_from_slice(&[0x12, 0x34]);
        let (written, octets) = rig.taken().unwrap();
        assert_eq!(written, header);
        assert!(octets == expected);
    }
    rig.sender.has_uso = false;
    let of = |is_tcp| LargeKind {
        is_ipv4: true,
        is_tcp,
        has_cwr: false,
    };
    assert_eq!(
        [true, false].map(|is_tcp| rig.sender.accepts_whole(of(is_tcp))),
        [true, false]
    );
}

#[test]
fn invalid_offloads_are_refused_and_counted() {
    let mut rig = Rig::new("tap-bad");
    let (small, large) = (tcp(100), tcp(10_000));
    let at = |start, offset| OffloadHeader {
        csum_start: start,
        csum_offset: offset,
        ..header(0, 0)
    };
    for bad in [
        // Outside the frame, within addresses, at its end.
        at(500, 16),
        at(34, 500),
        at(0, 16),
        at(34, 119),
        at(u16::MAX, u16::MAX),
        // Requests that were not offered, and one without a size.
        header(GSO_UDP, 1448),
        header(GSO_UDP_L4, 0),
        header(0x7f, 1448),
    ] {
        let before = rig.refused().0;
        rig.give(bad, &small);
        assert_eq!(rig.received(), [], "{bad:?}");
        assert_eq!(rig.refused().0, before + 1, "{bad:?}");
    }
    let before = rig.refused();
    for bad in [header(GSO_TCPV4, 0), header(GSO_UDP, 1448)] {
        rig.give(bad, &large);
    }
    assert_eq!(rig.received(), []);
    assert_eq!(rig.refused(), (before.0 + 2, 0));
    // Without a request, a frame has a limit.
    rig.give(header(0, 0), &large);
    rig.give(OffloadHeader::default(), &tcp(LIMIT as usize - HEADERS + 1));
    assert_eq!(rig.received(), []);
    assert_eq!(rig.refused(), (before.0 + 2, 2));
    // More than all buffers have, and less than a header.
    rig.give(header(GSO_TCPV4, 1448), &vec![1; 70_000]);
    rig.give(OffloadHeader::default(), &[1; 13]);
    assert_eq!(nix::unistd::write(&rig.kernel, &[0; 5]), Ok(5));
    assert_eq!(rig.received(), []);
    assert_eq!(rig.refused(), (before.0 + 4, 3));
    rig.give(header(GSO_TCPV6, 1448), &large);
    assert_eq!(rig.received().len(), 1);
}

#[test]
fn frames_stay_while_the_kernel_has_no_space_and_are_dropped_if_it_is_gone() {
    let mut rig = Rig::new("tap-full");
    let frame = [7; 1000];
    let filled = |rig: &Rig| {
        let mut burst = Burst::new(&rig.eal);
        for _ in 0..BURST_MAX {
            let mbuf = Mbuf::new(&rig.eal, &rig.pool, &frame).unwrap();
            burst.push(mbuf).unwrap();
        }
        burst
    };
    let mut sent = 0;
    let left = loop {
        let mut burst = filled(&rig);
        sent += rig.sender.send(&mut burst);
        if !burst.is_empty() {
            break burst.len();
        }
    };
    assert!(left <= BURST_MAX);
    assert_eq!(rig.sender.counters.frames.get(), sent as u64);
    assert_eq!(rig.sender.counters.refused.get(), 0);
    // Too long without a request.
    let mut burst = Burst::new(&rig.eal);
    let long = Mbuf::new(&rig.eal, &rig.pool, &[7; LIMIT as usize + 1]).unwrap();
    burst.push(long).unwrap();
    assert_eq!(rig.sender.send(&mut burst), 0);
    assert_eq!(
        (burst.len(), burst.take_refused()),
        (0, u64::from(LIMIT) + 1)
    );
    assert_eq!(rig.sender.counters.refused.get(), 1);
    let (other, _) = socketpair(
        AddressFamily::Unix,
        SockType::Datagram,
        None,
        SockFlag::SOCK_NONBLOCK,
    )
    .unwrap();
    rig.kernel = other;
    let mut burst = filled(&rig);
    // A process that another test is starting may still hold the former socket.
    let end = Instant::now() + Duration::from_secs(5);
    while !burst.is_empty() && Instant::now() < end {
        assert_eq!(rig.sender.send(&mut burst), 0);
    }
    assert!(burst.is_empty());
    assert_eq!(rig.sender.counters.refused.get(), 1 + BURST_MAX as u64);
}

#[test]
fn buffers_go_back_to_their_pools() {
    let mut rig = Rig::new("tap-buffers");
    let large_pool = rig.receiver.stock.large_pool().clone();
    for _ in 0..3 {
        for number in 0..50 {
            rig.give(header(GSO_TCPV4, 1448), &tcp(5000));
            if number % 3 == 0 {
                rig.give(header(GSO_UDP, 1448), &tcp(5000));
            }
            rig.give(OffloadHeader::default(), &[1; 60]);
            assert_eq!(rig.received().len(), 2);
        }
    }
    // A burst holds large buffers until they are gone. Then frames wait.
    let mut bursts = Vec::new();
    for _ in 0..LARGE {
        rig.give(header(GSO_TCPV4, 1448), &tcp(2048));
        let mut burst = Burst::new(&rig.eal);
        assert_eq!(rig.receiver.receive(&mut burst, 1), 1);
        bursts.push(burst);
    }
    rig.give(OffloadHeader::default(), &[1; 60]);
    assert_eq!(rig.received(), []);
    assert!(rig.receiver.counters.no_buffers.get() > 0);
    drop(bursts);
    assert_eq!(rig.received().len(), 1);
    let Rig {
        receiver,
        sender,
        pool,
        ..
    } = rig;
    drop((receiver, sender));
    assert_eq!(pool.available(), pool.count());
    assert_eq!(large_pool.available(), large_pool.count());
}

/// Its octets are in the cache of the CPU that has sent them.
#[test]
fn the_large_buffer_that_was_freed_last_is_used_first() {
    let eal = testing::eal();
    let pool = stock::large_pool(&eal, 1).unwrap();
    let take = || Mbuf::empty(&pool, 0).unwrap();
    for _ in 0..3 {
        let frames = [take(), take(), take()];
        let mut numbers = frames.each_ref().map(Mbuf::buffer);
        drop(frames);
        numbers.reverse();
        assert_eq!(
            [take(), take(), take()].map(|frame| frame.buffer()),
            numbers
        );
    }
    let all: Vec<_> = (0..LARGE).map(|_| take()).collect();
    assert!(Mbuf::empty(&pool, 0).is_none());
    drop(all);
    assert_eq!(pool.available(), pool.count());
}

/// Large buffers of a port with one queue.
const LARGE: usize = 96;

proptest! {
    #[test]
    fn any_header_is_survived(
        octets in any::<[u8; HEADER_LEN]>(),
        is_sensible in any::<bool>(),
        gso_type in 0u8..6,
        start in 0u16..100,
        length in 0usize..3000,
    ) {
        thread_local! {
            static RIG: std::cell::RefCell<Option<Rig>> = const { std::cell::RefCell::new(None) };
        }
        RIG.with_borrow_mut(|rig| {
            let rig = rig.get_or_insert_with(|| Rig::new("tap-any"));
            let mut header = OffloadHeader::parse(&octets);
            if is_sensible {
                header = OffloadHeader { flags: FLAG_NEEDS_CSUM, gso_type, csum_start: start, csum_offset: 16, ..header };
            }
            let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (malformed, too_long) = rig.refused();
            rig.give(header, &frame);
            let received = rig.received();
            let refused = rig.refused();
            let count = received.len() as u64 + refused.0 - malformed + refused.1 - too_long;
            assert_eq!(count, 1);
            for (octets, size) in received {
                assert_eq!(octets.len(), length);
                assert!(length <= LIMIT as usize || size == Some(header.gso_size));
                assert!(size.is_none_or(|size| size == header.gso_size));
                // Nothing but a checksum changes.
                let differs = octets.iter().zip(&frame).filter(|(a, b)| a != b).count();
                assert!(differs <= 4);
            }
        });
    }
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn opened(uri: &str, options: &PortOptions) -> Result<(Interface, Vec<Receiver>), Error> {
    let eal = testing::eal();
    let name = format!("{}-{}", options.name, eal.next_device());
    let pool = Mempool::new(&eal, &name, 1023, options.data_room()).unwrap();
    let interrupts = [Interrupts::new().unwrap()];
    let uri = uri.parse().unwrap();
    let (interface, receivers, _) = open(&eal, &uri, options, &pool, &interrupts)?;
    Ok((interface, receivers))
}

#[test]
fn an_interface_has_the_settings_of_the_uri_and_is_deleted_unless_it_persists() {
    in_a_namespace(|| {
        let options = PortOptions {
            rx_ring_size: 512,
            ..PortOptions::new("tap-uri", 9018)
        };
        let uri = "tap:qwuri0?mac=02:00:00:00:00:0a";
        let (interface, _receivers) = opened(uri, &options).unwrap();
        // The kernel announces a carrier some time after it is there.
        testing::until("the link is up", || interface.link_is_up());
        assert_eq!(interface.mac_address(), [2, 0, 0, 0, 0, 10]);
        assert_eq!(interface.ring_sizes(), (Some(512), None));
        assert_eq!(interface.control.mtu(), Ok(9000));
        let shown = ip(&["link", "show", "qwuri0"]);
        for part in ["mtu 9000", "qlen 512", "02:00:00:00:00:0a", "UP"] {
            assert!(shown.contains(part), "{shown}");
        }
        let error = opened("tap:qwuri0", &options).unwrap_err().to_string();
        assert!(error.contains("another process uses"), "{error}");
        // It is found after it was renamed.
        ip(&["link", "set", "qwuri0", "down"]);
        assert!(!interface.link_is_up());
        ip(&["link", "set", "qwuri0", "name", "qwuri1"]);
        ip(&["link", "set", "qwuri1", "up"]);
        testing::until("the renamed link is up", || interface.link_is_up());
        drop((interface, _receivers));
        assert!(!ip(&["link"]).contains("qwuri"));

        // With several queues and with one, in turns.
        for queues in [2, 1, 1] {
            let options = PortOptions {
                rx_queues: queues,
                tx_queues: queues,
                ..PortOptions::new(&format!("tap-keep{queues}"), 1518)
            };
            let made = opened("tap:qwkeep?persist=on", &options).unwrap();
            testing::until("the link is up", || made.0.link_is_up());
            drop(made);
            testing::until("the carrier is lost", || {
                ip(&["link", "show", "qwkeep"]).contains("NO-CARRIER")
            });
        }
        let small = PortOptions::new("tap-kept", 1518);
        let made = opened("tap:qwkeep?mtu=1400", &small).unwrap();
        assert_eq!(made.0.control.mtu(), Ok(1400));
        drop(made);
        let error = opened("tap:qwlong?mtu=1501", &small)
            .unwrap_err()
            .to_string();
        assert!(error.contains("frames of up to 1519 octets"), "{error}");
        assert!(!ip(&["link"]).contains("qwlong"));
        ip(&["link", "delete", "qwkeep"]);
        ip(&["link", "add", "qwother", "type", "bridge"]);
        let error = opened("tap:qwother", &options).unwrap_err().to_string();
        assert!(error.contains("is not a tap"), "{error}");
    });
}

/// Keeps the kernel from sending announcements on interfaces of the thread's network namespace. It drops those of an interface that moves.
fn without_ipv6() {
    for scope in ["all", "default"] {
        let setting = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        std::fs::write(setting, "1").unwrap();
    }
}

#[test]
fn an_interface_is_in_its_namespace_and_may_move() {
    let (made, namespace) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = spawn_in_namespace(move || {
        without_ipv6();
        made.send(File::open("/proc/thread-self/ns/net").unwrap())
            .unwrap();
        let _ = ended.recv();
        testing::until("the interfaces are gone", || {
            let links = ip(&["link"]);
            !links.contains("qwthere") && !links.contains("qwhere")
        });
    });
    let namespace = namespace.recv().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    in_a_namespace(move || {
        without_ipv6();
        let options = PortOptions::new("tap-there", 1518);
        let uri = format!("tap:qwthere?netns={path}");
        let (interface, receivers) = opened(&uri, &options).unwrap();
        testing::until("the link is up", || interface.link_is_up());
        assert_ne!(interface.mac_address(), [0; 6]);
        assert!(!ip(&["link"]).contains("qwthere"));
        let here = opened("tap:qwhere", &PortOptions::new("tap-here", 1518)).unwrap();
        ip(&["link", "set", "qwhere", "netns", &path]);
        // The kernel sets a moved interface down.
        assert!(!here.0.link_is_up());
        assert_ne!(here.0.mac_address(), [0; 6]);
        here.0.control.set_up().unwrap();
        testing::until("the link is up", || here.0.link_is_up());
        assert_eq!(here.0.stats().rx_missed, 0);
        drop((interface, receivers, here));
        let missing = opened("tap:qwx?netns=qw-none", &options).unwrap_err();
        assert!(missing.to_string().contains("ip netns add"), "{missing}");
        let wrong = opened("tap:qwx?netns=/dev/null", &options).unwrap_err();
        assert!(
            wrong.to_string().contains("not a network namespace"),
            "{wrong}"
        );
        end.send(()).unwrap();
    });
    other.join().unwrap();
}

#[test]
fn frames_that_the_kernel_drops_are_missed() {
    in_a_namespace(|| {
        let options = PortOptions {
            rx_ring_size: 32,
            ..PortOptions::new("tap-missed", 1518)
        };
        let (interface, _receivers) = opened("tap:qwmissed", &options).unwrap();
        ip(&["address", "add", "10.9.9.1/24", "dev", "qwmissed"]);
        ip(&[
            "neighbour",
            "add",
            "10.9.9.2",
            "lladdr",
            "02:00:00:00:00:02",
            "dev",
            "qwmissed",
        ]);
        // Without a queueing discipline, which would hold frames back.
        let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
        for _ in 0..100 {
            let _ = socket.send_to(b"x", "10.9.9.2:9");
        }
        testing::until("frames are missed", || interface.stats().rx_missed >= 60);
    });
}

#[test]
fn a_tap_signals_frames_of_the_kernel_while_no_thread_polls_it() {
    const ROUNDS: u8 = 20;
    const SIGNAL_MAX_MS: u16 = 20_000;
    in_a_namespace(|| {
        let eal = testing::eal();
        let options = PortOptions {
            rx_interrupts: true,
            ..PortOptions::new("bell", 1518)
        };
        let pool = Mempool::new(&eal, "bell", 4095, options.data_room()).unwrap();
        let interrupts = Interrupts::new().unwrap();
        let uri = "tap:qwbell0".parse().unwrap();
        let opened = open(
            &eal,
            &uri,
            &options,
            &pool,
            std::slice::from_ref(&interrupts),
        );
        let (_interface, mut receivers, _) = opened.unwrap();
        let receiver = &mut receivers[0];
        let received = |receiver: &mut Receiver| {
            let mut burst = Burst::new(&eal);
            let mut all = 0;
            while receiver.receive(&mut burst, 32) > 0 {
                all += burst.len();
                burst.free();
            }
            all
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        epoll.add(interrupts.as_fd(), event).unwrap();
        ip(&["address", "add", "10.9.9.1/24", "dev", "qwbell0"]);
        let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
        for round in 0..ROUNDS {
            // As a forwarding thread: arm, look once more, wait. The kernel may have sent frames by itself.
            receiver.read_at_once();
            received(receiver);
            // The kernel asks for the address of this host, which does not exist.
            let nobody = Ipv4Addr::new(10, 9, 9, 10 + round);
            socket.send_to(b"x", (nobody, 9)).unwrap();
            let mut events = [EpollEvent::empty()];
            let came = epoll.wait(&mut events, SIGNAL_MAX_MS).unwrap();
            assert_eq!(came, 1, "no signal in round {round}");
            receiver.read_at_once();
            testing::until("the frame comes", || received(receiver) > 0);
        }
    });
}
