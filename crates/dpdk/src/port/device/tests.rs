// SPDX-License-Identifier: Apache-2.0
//! Tests of devices.

use super::*;
use crate::burst::Mbuf;
use crate::segment::{HeaderLengths, LargeKind, MergedFrame};

#[test]
fn flows_are_hashed_by_addresses_and_ports_as_far_as_the_device_can() {
    // rte_ethdev.h, RTE_ETH_RSS_*: IPv4 with fragments, TCP, UDP, SCTP and others; the same of IPv6, and its extension
    // headers. Between them, bit 14 is for frames without IP.
    const WANTED: u64 = 0x3ffc | 0x3_8000;
    const IPV4_AND_TCP: u64 = 1 << 2 | 1 << 4;
    for (can, hashed) in [
        (u64::MAX, WANTED),
        (IPV4_AND_TCP | 1 << 14, IPV4_AND_TCP),
        (1 << 14, 0),
        (0, 0),
    ] {
        // SAFETY: plain integers and pointers, for which zero is a value; both structures are whole.
        let conf = unsafe {
            let mut conf: sys::rte_eth_conf = mem::zeroed();
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            info.flow_type_rss_offloads = can;
            let code = sys::qw_hash_flows(&raw mut conf, &raw const info, 0);
            assert_eq!(code, 0);
            conf
        };
        assert_eq!(conf.rx_adv_conf.rss_conf.rss_hf, hashed, "{can:x}");
        let mode = match hashed {
            0 => sys::RTE_ETH_MQ_RX_NONE,
            _ => sys::RTE_ETH_MQ_RX_RSS,
        };
        assert_eq!(conf.rxmode.mq_mode, mode, "{can:x}");
    }
}

/// The Toeplitz hash, bit by bit: each set bit of the input adds the 32 bits of the key from its place on.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |octets: &[u8], at: usize| u32::from(octets[at / 8] >> (7 - at % 8) & 1);
    let window = |from: usize| (from..from + 32).fold(0, |word, at| word << 1 | bit(key, at));
    (0..input.len() * 8)
        .filter(|at| bit(input, *at) == 1)
        .fold(0, |hash, at| hash ^ window(at))
}

#[test]
fn the_toeplitz_hash_of_the_test_is_that_of_the_specification() {
    // Microsoft, Verifying the RSS Hash Calculation: 66.9.149.187:2794 to 161.142.100.80:1766.
    let key = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
    assert_eq!(toeplitz(&key, &input), 0x51cc_c178);
}

#[test]
fn a_symmetric_key_gives_both_directions_one_hash_and_spreads_flows() {
    for size in [40_u8, 52] {
        // SAFETY: plain integers and pointers, for which zero is a value; the key has static storage of 64 octets.
        let key = unsafe {
            let mut conf: sys::rte_eth_conf = mem::zeroed();
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            info.flow_type_rss_offloads = u64::MAX;
            info.hash_key_size = size;
            assert_eq!(sys::qw_hash_flows(&raw mut conf, &raw const info, 1), 0);
            let rss = conf.rx_adv_conf.rss_conf;
            assert_eq!(rss.rss_key_len, size);
            std::slice::from_raw_parts(rss.rss_key, usize::from(size)).to_vec()
        };
        let mut queues = [0_u32; 4];
        for flow in 0..4000_u16 {
            let [high, low] = flow.to_be_bytes();
            let (source, destination) = ([10, 0, high, low], [192, 0, 2, 1]);
            // Equal words of addresses and ports would cancel each other.
            let (from, to) = (flow.wrapping_mul(7919).to_be_bytes(), [0, 53]);
            let there = [&source[..], &destination, &from, &to].concat();
            let back = [&destination[..], &source, &to, &from].concat();
            let hash = toeplitz(&key, &there);
            assert_eq!(hash, toeplitz(&key, &back));
            queues[hash as usize % 4] += 1;
        }
        assert!(queues.iter().all(|count| *count > 500), "{queues:?}");
    }
    for (size, can) in [(0, u64::MAX), (65, u64::MAX), (40, 0)] {
        // SAFETY: as above.
        let code = unsafe {
            let mut conf: sys::rte_eth_conf = mem::zeroed();
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            info.flow_type_rss_offloads = can;
            info.hash_key_size = size;
            sys::qw_hash_flows(&raw mut conf, &raw const info, 1)
        };
        assert_eq!(code, -nix::libc::ENOTSUP, "{size} {can:x}");
    }
}

#[test]
fn the_redirection_table_is_spread_over_the_queues_in_use() {
    let eal = crate::testing::eal();
    let options = PortOptions {
        rx_queues: 3,
        tx_queues: 3,
        ..PortOptions::new("spread", 1518)
    };
    let pool = Mempool::new(&eal, "spread", 4095, options.data_room()).unwrap();
    let uri = "null:".parse().unwrap();
    let mut device = Device::open(&eal, &uri, &options, &pool).unwrap();
    device.start(&options).unwrap();
    let mut table = device.redirection_table();
    assert_eq!((table.len(), &table[..6]), (128, &[0, 1, 2, 0, 1, 2][..]));
    // Entries move to other queues, and no table has a queue that is not there.
    table[0] = 2;
    device.set_redirection_table(&table).unwrap();
    assert_eq!(device.redirection_table(), table);
    for wrong in [vec![3; 128], vec![0; 64], Vec::new()] {
        let error = device.set_redirection_table(&wrong).unwrap_err();
        assert!(error.to_string().contains("redirection table"), "{error}");
    }
    assert_eq!(device.redirection_table(), table);
}

/// Opens and starts a device whose queue is to interrupt.
fn interrupting(eal: &Eal, name: &str, uri: &str) -> (Device, PortOptions) {
    let options = PortOptions {
        rx_interrupts: true,
        ..PortOptions::new(name, 1518)
    };
    let pool = Mempool::new(eal, name, 4095, options.data_room()).unwrap();
    let uri = uri.parse().unwrap();
    let mut device = Device::open(eal, &uri, &options, &pool).unwrap();
    device.start(&options).unwrap();
    (device, options)
}

#[test]
fn a_driver_without_interrupts_is_refused_by_the_name_of_the_port() {
    let eal = crate::testing::eal();
    let (device, options) = interrupting(&eal, "deaf", "null:");
    let interrupts = [Interrupts::new().unwrap()];
    let error = device.receivers(&options, &interrupts).unwrap_err();
    let error = error.to_string();
    for part in [
        "deaf",
        "null: has no receive interrupts",
        "idle = \"sleep\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// Returns the properties of a device with these transmit offloads.
fn with_offloads(capabilities: u64) -> sys::rte_eth_dev_info {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: sys::rte_eth_dev_info = unsafe { mem::zeroed() };
    info.tx_offload_capa = capabilities;
    info
}

#[test]
fn a_card_cuts_data_if_its_driver_can_and_the_uri_allows_it() {
    // rte_ethdev.h, RTE_ETH_TX_OFFLOAD_*: checksums of IPv4 and TCP, TSO, frames in several buffers.
    const IPV4: u64 = 1 << 1;
    const TCP: u64 = 1 << 3;
    const TSO: u64 = 1 << 5;
    const CHAINS: u64 = 1 << 15;
    let offloads = |uri: &str, capabilities| {
        let card = CardSegmentation::of(&uri.parse().unwrap(), &with_offloads(capabilities));
        card.map(CardSegmentation::offloads)
    };
    let card = "pci:0000:17:00.0";
    assert_eq!(offloads(card, u64::MAX), Some(IPV4 | TCP | TSO));
    assert_eq!(offloads(card, TCP | TSO | CHAINS), Some(TCP | TSO));
    for capabilities in [IPV4 | TCP | TSO, IPV4 | TCP | CHAINS, TSO | CHAINS, 0] {
        assert_eq!(offloads(card, capabilities), None, "{capabilities:x}");
    }
    assert_eq!(offloads("pci:0000:17:00.0?tso=off", u64::MAX), None);
    assert_eq!(offloads("null:", u64::MAX), None);
}

#[test]
fn a_card_handles_checksums_if_its_driver_can_and_the_uri_allows_it() {
    // rte_ethdev.h, RTE_ETH_RX_OFFLOAD_* and RTE_ETH_TX_OFFLOAD_*: checksums of UDP and TCP.
    const UDP: u64 = 1 << 2;
    const TCP: u64 = 1 << 3;
    let checksums = |uri: &str, rx, tx| {
        let mut info = with_offloads(tx);
        info.rx_offload_capa = rx;
        CardChecksums::of(&uri.parse().unwrap(), &info)
    };
    let card = "pci:0000:17:00.0";
    for (rx, tx, used_rx, used_tx) in [
        (u64::MAX, u64::MAX, UDP | TCP, UDP | TCP),
        (TCP, UDP, TCP, UDP),
        (0, TCP, 0, TCP),
        (1 << 1 | 1 << 4, 1 << 1 | 1 << 5, 0, 0),
    ] {
        let used = checksums(card, rx, tx);
        assert_eq!((used.rx, used.tx), (used_rx, used_tx), "{rx:x} {tx:x}");
        let computed = [true, false].map(|is_tcp| used.computes(is_tcp));
        assert_eq!(computed, [used_tx & TCP != 0, used_tx & UDP != 0]);
    }
    for uri in ["pci:0000:17:00.0?checksum=off", "null:"] {
        let none = CardChecksums::default();
        assert_eq!(checksums(uri, u64::MAX, u64::MAX), none, "{uri}");
    }
    // It does not depend on segmentation.
    let without = "pci:0000:17:00.0?tso=off";
    assert_eq!(checksums(without, 0, u64::MAX).tx, UDP | TCP);
}

#[test]
fn a_card_without_the_offload_leaves_checksums_to_the_cpu() {
    let eal = crate::testing::eal();
    let options = PortOptions::new("summing", 1518);
    let pool = Mempool::new(&eal, "summing", 4095, options.data_room()).unwrap();
    let mut device = Device::open(&eal, &"null:".parse().unwrap(), &options, &pool).unwrap();
    device.start(&options).unwrap();
    let mut sender = device.sender(0, &options);
    // The sum of the pseudo header is in the field, and no other octet of TCP is set.
    let mut octets = [0; 64];
    octets[50] = 0x12;
    octets[51] = 0x34;
    let lengths = |ethernet| HeaderLengths {
        ethernet,
        network: 20,
        transport: 20,
    };
    let new = || Mbuf::new(&eal, &pool, &octets).unwrap();
    assert!(!sender.computes_checksum(TCP_OVER_IPV4));
    let computed = sender.leave_checksum(new(), lengths(14), TCP_OVER_IPV4);
    assert!(!computed.has_checksum_request());
    assert_eq!(computed.octets()[50..52], (!0x1234_u16).to_be_bytes());
    let card = "pci:0000:17:00.0".parse().unwrap();
    let tcp_only = with_offloads(1 << 3);
    sender.checksums = CardChecksums::of(&card, &tcp_only);
    assert!(sender.computes_checksum(TCP_OVER_IPV4));
    let left = sender.leave_checksum(new(), lengths(14), TCP_OVER_IPV4);
    assert!(left.has_checksum_request());
    assert_eq!(left.octets(), octets);
    let mut burst = Burst::new(&eal);
    burst.push(left).unwrap();
    assert_eq!(sender.send(&mut burst), 1);
    // Not of UDP, and not behind headers longer than a request can state.
    let udp = LargeKind {
        is_tcp: false,
        ..TCP_OVER_IPV4
    };
    let computed = sender.leave_checksum(new(), lengths(14), udp);
    assert!(!computed.has_checksum_request());
    let mut long = [0; 200];
    long[166] = 0x12;
    let long = Mbuf::new(&eal, &pool, &long).unwrap();
    let computed = sender.leave_checksum(long, lengths(130), TCP_OVER_IPV4);
    assert!(!computed.has_checksum_request());
    assert_eq!(computed.octets()[166..168], (!0x1200_u16).to_be_bytes());
}

/// Returns a frame with 2,000 octets of TCP data in a buffer of each pool, to be cut into segments of half of them.
fn large<'eal>(eal: &'eal Eal, pools: [&Mempool; 2]) -> Mbuf<'eal> {
    let [first, second] = pools.map(|pool| {
        let frame = Mbuf::new(eal, pool, &[0; 1054]).unwrap();
        frame.into_exclusive().unwrap()
    });
    let mut merged = MergedFrame::new(first);
    merged.append(second, 54);
    let lengths = HeaderLengths {
        ethernet: 14,
        network: 20,
        transport: 20,
    };
    let frame = merged.finish(1000);
    frame.request_segments(lengths, TCP_OVER_IPV4, 0).unwrap()
}

const TCP_OVER_IPV4: LargeKind = LargeKind {
    is_ipv4: true,
    is_tcp: true,
    has_cwr: false,
};

#[test]
fn long_frames_leave_if_the_card_can_cut_them() {
    let eal = crate::testing::eal();
    let options = PortOptions::new("cutting", 1518);
    let pool = Mempool::new(&eal, "cutting", 4095, options.data_room()).unwrap();
    let mut device = Device::open(&eal, &"null:".parse().unwrap(), &options, &pool).unwrap();
    device.start(&options).unwrap();
    let mut sender = device.sender(0, &options);
    assert!(!sender.accepts_whole(TCP_OVER_IPV4));
    let card = "pci:0000:17:00.0".parse().unwrap();
    let card = CardSegmentation::of(&card, &with_offloads(u64::MAX)).unwrap();
    let mut burst = Burst::new(&eal);
    // A frame may use a quarter of the ring.
    for (descriptors, is_cut) in [(8, true), (7, false)] {
        sender.segmentation = Some(card.in_ring(descriptors));
        assert!(sender.accepts_whole(TCP_OVER_IPV4));
        let prepared = sender.prepare(large(&eal, [&pool, &pool]));
        assert_eq!(prepared.is_ok(), is_cut, "{descriptors}");
        let frame = prepared.unwrap_or_else(|frame| frame);
        assert_eq!(frame.has_segment_request(), is_cut);
        assert_eq!(frame.segment_size(), Some(1000));
        burst.push(frame).unwrap();
        assert_eq!(sender.send(&mut burst), usize::from(is_cut));
        assert!(burst.is_empty());
        assert_eq!(burst.take_refused(), if is_cut { 0 } else { 2054 });
    }
    for kind in [
        LargeKind {
            is_tcp: false,
            ..TCP_OVER_IPV4
        },
        LargeKind {
            has_cwr: true,
            ..TCP_OVER_IPV4
        },
    ] {
        assert!(!sender.accepts_whole(kind), "{kind:?}");
    }
}

#[test]
fn a_card_keeps_no_large_buffer_of_a_tap() {
    const LARGE: u32 = 3;
    let eal = crate::testing::eal();
    let options = PortOptions::new("keeping", 1518);
    let space = options.data_room();
    let pool = Mempool::new(&eal, "keeping", 4095, space).unwrap();
    let large_pool = Mempool::uncached(&eal, "keeping-large", LARGE, 64_000).unwrap();
    let mut device = Device::open(&eal, &"null:".parse().unwrap(), &options, &pool).unwrap();
    device.start(&options).unwrap();
    let mut sender = device.sender(0, &options);
    let card = "pci:0000:17:00.0".parse().unwrap();
    let card = CardSegmentation::of(&card, &with_offloads(u64::MAX)).unwrap();
    sender.segmentation = Some(card.in_ring(1024));
    // None of them is sent, like in the ring of a driver.
    let mut kept = Vec::new();
    for _ in 0..2 * LARGE {
        let frame = large(&eal, [&pool, &large_pool]);
        assert!(frame.has_larger_buffer(space));
        let prepared = sender.prepare(frame).unwrap();
        assert!(prepared.has_segment_request() && !prepared.has_larger_buffer(space));
        assert_eq!(
            (prepared.length(), prepared.segment_size()),
            (2054, Some(1000))
        );
        kept.push(prepared);
        assert_eq!(large_pool.available(), LARGE);
    }
    // Without buffers for the copy, the switch gets the frame back and cuts it.
    sender.pool = Mempool::uncached(&eal, "keeping-few", 1, space).unwrap();
    let frame = sender
        .prepare(large(&eal, [&pool, &large_pool]))
        .unwrap_err();
    assert!(!frame.has_segment_request());
    assert_eq!((frame.length(), frame.segment_size()), (2054, Some(1000)));
    assert_eq!(sender.pool.available(), 1);
}

#[test]
fn a_reset_is_reported_once_until_the_device_is_watched_again() {
    let eal = crate::testing::eal();
    let options = PortOptions::new("reset", 1518);
    let pool = Mempool::new(&eal, "reset", 4095, options.data_room()).unwrap();
    let mut device = Device::open(&eal, &"null:".parse().unwrap(), &options, &pool).unwrap();
    device.start(&options).unwrap();
    let name = c"0000:17:00.0";
    for _ in 0..2 {
        // SAFETY: the port exists; the text is terminated.
        let taken = unsafe {
            assert_eq!(sys::qw_watch_removal(device.id, name.as_ptr()), 0);
            let before = sys::qw_take_reset(device.id);
            // A physical function announces a reset, and the return of its link.
            sys::qw_note_reset(device.id);
            sys::qw_note_reset(device.id);
            let first = sys::qw_take_reset(device.id);
            sys::qw_note_reset(device.id);
            let second = sys::qw_take_reset(device.id);
            sys::qw_end_watch(device.id, name.as_ptr());
            [before, first, second]
        };
        assert_eq!(taken, [0, 1, 0]);
    }
    // Marks of other devices than cards are those of former ports.
    assert!(!device.take_reset());
}
