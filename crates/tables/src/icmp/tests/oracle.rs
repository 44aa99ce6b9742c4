// SPDX-License-Identifier: Apache-2.0
//! Replies to packets built by scapy, parsed by scapy.

use super::*;
use crate::scapy::{built, printed};

/// Returns addresses, type, code, and whether scapy computes the same checksums, then the expression `more`.
fn show_v4(packet: &[u8], more: &str) -> String {
    let script = "p = IP(octets)\nm = p[ICMP]\nb = p.copy()\ndel b.chksum\ndel b[ICMP].chksum\n\
                  print(p.src, p.dst, m.type, m.code, bytes(b) == octets, ";
    printed(&format!("{script}{more})"), packet)
}

fn show_v6(packet: &[u8], more: &str) -> String {
    let script = "p = IPv6(octets)\nm = p.payload\nb = p.copy()\ndel b.payload.cksum\n\
                  print(p.src, p.dst, type(m).__name__, m.code, bytes(b) == octets, ";
    printed(&format!("{script}{more})"), packet)
}

#[test]
fn scapy_gets_the_echo_that_it_asked_for() {
    let request =
        built("IP(src='192.0.2.7', dst='192.0.2.1', tos=184, id=7) / ICMP(id=3, seq=4) / b'hello'");
    let reply = echo_reply(&request).unwrap();
    assert_eq!(
        show_v4(&reply, "m.id, m.seq, p.tos, p.id, bytes(m.payload)"),
        "192.0.2.1 192.0.2.7 0 0 True 3 4 184 7 b'hello'"
    );
    let request = built(
        "IPv6(src='2001:db8::7', dst='2001:db8::1') / IPv6ExtHdrDestOpt(options=[PadN(optdata=b'1234')]) / \
         ICMPv6EchoRequest(id=3, seq=4, data=b'hello')",
    );
    let reply = echo_reply(&request).unwrap();
    assert_eq!(
        show_v6(&reply, "m.id, m.seq, m.data"),
        "2001:db8::1 2001:db8::7 ICMPv6EchoReply 0 True 3 4 b'hello'"
    );
}

#[test]
fn scapy_reads_errors_as_they_are_meant() {
    let v4 = "IP(src='192.0.2.7', dst='198.51.100.9') / UDP(sport=1, dport=2) / (b'x' * 1000)";
    let packet = built(v4);
    for (kind, expected) in [
        (Error::TooBig(1400), "3 4 True 1400 198.51.100.9 576"),
        (Error::TimeExceeded, "11 0 True 0 198.51.100.9 576"),
        (Error::Prohibited, "3 13 True 0 198.51.100.9 576"),
    ] {
        let answer = error(&packet, kind, us4()).unwrap();
        let more = "getattr(m, 'nexthopmtu', 0) or 0, m.payload.dst, len(octets)";
        assert_eq!(
            show_v4(&answer, more),
            format!("192.0.2.1 192.0.2.7 {expected}")
        );
    }
    let answer = error(&packet, Error::ParameterProblem(8), us4()).unwrap();
    assert_eq!(show_v4(&answer, "m.ptr"), "192.0.2.1 192.0.2.7 12 0 True 8");

    let v6 = "IPv6(src='2001:db8::7', dst='2001:db8:9::9') / UDP(sport=1, dport=2) / (b'x' * 2000)";
    let packet = built(v6);
    for (kind, more, expected) in [
        (
            Error::TooBig(1400),
            "m.mtu",
            "ICMPv6PacketTooBig 0 True 1400",
        ),
        (Error::TimeExceeded, "0", "ICMPv6TimeExceeded 0 True 0"),
        (Error::NetUnreachable, "0", "ICMPv6DestUnreach 0 True 0"),
        (
            Error::ProtocolUnreachable,
            "m.ptr",
            "ICMPv6ParamProblem 1 True 6",
        ),
    ] {
        let answer = error(&packet, kind, us6()).unwrap();
        assert_eq!(
            show_v6(&answer, &format!("{more}, m.payload.dst, len(octets)")),
            format!("2001:db8::1 2001:db8::7 {expected} 2001:db8:9::9 1280")
        );
    }
}
