// SPDX-License-Identifier: Apache-2.0
//! Sent frames parsed by scapy, and received frames built by scapy.

use super::*;
use crate::scapy::{built, printed};

/// Returns the last sent frame.
fn sent(actions: &[Action<u32>]) -> &[u8] {
    match actions.last() {
        Some(Action::Transmit { frame, .. }) => frame,
        other => panic!("{other:?}"),
    }
}

const SHOW_ARP: &str = "frame = Ether(octets)\na = frame[ARP]\n\
    print(frame.dst, frame.src, a.hwtype, a.ptype, a.hwlen, a.plen, a.op, a.hwsrc, a.psrc, a.hwdst, a.pdst, len(octets))";
const SHOW_ND: &str = "frame = Ether(octets)\nm = frame[IPv6].payload\no = m.payload\n\
    again = frame.copy()\ndel again[IPv6].payload.cksum\n\
    print(frame.dst, frame.src, frame[IPv6].src, frame[IPv6].dst, frame[IPv6].hlim, type(m).__name__, m.tgt, type(o).__name__, o.lladdr, bytes(again) == octets)";

#[test]
fn scapy_reads_arp_as_it_is_meant() {
    let mut table = Table::new();
    let asked = table.resolve(s(0), "192.0.2.9", None);
    let text = printed(SHOW_ARP, sent(&asked));
    let request = "ff:ff:ff:ff:ff:ff 02:00:00:00:00:0a 1 2048 6 4 1 02:00:00:00:00:0a 192.0.2.1 00:00:00:00:00:00 192.0.2.9 60";
    assert_eq!(text, request);
    let question = built(
        "Ether(src='02:00:00:00:00:01', dst='ff:ff:ff:ff:ff:ff') / \
         ARP(op='who-has', hwsrc='02:00:00:00:00:01', psrc='192.0.2.9', pdst='192.0.2.1')",
    );
    let actions = table.arp(s(0), &question);
    assert_eq!(actions[0], found("192.0.2.9", THEIRS, &[]));
    let reply = "02:00:00:00:00:01 02:00:00:00:00:0a 1 2048 6 4 2 02:00:00:00:00:0a 192.0.2.1 02:00:00:00:00:01 192.0.2.9 60";
    assert_eq!(printed(SHOW_ARP, sent(&actions)), reply);
}

#[test]
fn scapy_reads_neighbour_discovery_as_it_is_meant() {
    let mut table = Table::new();
    let asked = table.resolve(s(0), "2001:db8::1:2:3", None);
    let text = printed(SHOW_ND, sent(&asked));
    let solicitation = "33:33:ff:02:00:03 02:00:00:00:00:0a 2001:db8::1 ff02::1:ff02:3 255 ICMPv6ND_NS \
                        2001:db8::1:2:3 ICMPv6NDOptSrcLLAddr 02:00:00:00:00:0a True";
    assert_eq!(text, solicitation);
    let answer = built(
        "Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:0a') / \
         IPv6(src='2001:db8::1:2:3', dst='2001:db8::1', hlim=255) / \
         ICMPv6ND_NA(tgt='2001:db8::1:2:3', R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr='02:00:00:00:00:01')",
    );
    let actions = table.nd(s(0), &answer);
    assert_eq!(actions, [found("2001:db8::1:2:3", THEIRS, &[])]);
    let question = built(
        "Ether(src='02:00:00:00:00:01', dst='33:33:ff:00:00:01') / \
         IPv6(src='fe80::9', dst='ff02::1:ff00:1', hlim=255) / \
         ICMPv6ND_NS(tgt='2001:db8::1') / ICMPv6NDOptSrcLLAddr(lladdr='02:00:00:00:00:01')",
    );
    let actions = table.nd(s(0), &question);
    let show = format!("{SHOW_ND}\nprint(m.R, m.S, m.O)");
    let advertisement = "02:00:00:00:00:01 02:00:00:00:00:0a 2001:db8::1 fe80::9 255 ICMPv6ND_NA \
                         2001:db8::1 ICMPv6NDOptDstLLAddr 02:00:00:00:00:0a True\n1 1 1";
    assert_eq!(printed(&show, sent(&actions)), advertisement);
}
