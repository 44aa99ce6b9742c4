# SPDX-License-Identifier: Apache-2.0
"""Requirements of the RFCs on the router, as frames: the frames sent to it, and every frame that it must send, octet by octet.

scapy makes all frames, independently of the router's code. `requirements.py DIRECTORY` prints one JSON document: the cases in order,
and the requirements that the code in DIRECTORY (the sources of the switch and its tables) names and that no case covers.

`covers` of a case lists its requirements: "RFC SECTION", or "RFC" if the code names no section.
"""

import json
import pathlib
import re
import struct
import sys

from scapy.config import conf
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    in6_chksum,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import checksum

conf.verb = 0

# The router's interfaces, and the hosts on their links (configured by requirements.rs).
ROUTER_A, ROUTER_B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
HOST_A, HOST_B = "02:00:00:00:00:01", "02:00:00:00:00:02"
FIRST_WAY, SECOND_WAY = "02:00:00:00:00:12", "02:00:00:00:00:13"
A4, B4, A6, B6 = "192.0.2.7", "198.51.100.9", "2001:db8:a::7", "2001:db8:b::9"
US_A4, US_B4, US_A6, US_B6 = "192.0.2.1", "198.51.100.1", "2001:db8:a::1", "2001:db8:b::1"
LINK_LOCAL_A = "fe80::ff:fe00:a"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ERROR_MAX_V4, ERROR_MAX_V6 = 576, 1280

cases = []
# Frames that the router may send again while it waits for an answer, or later, to check that a neighbour is reachable.
background = []


def case(name, covers, *steps):
    cases.append({"name": name, "covers": covers, "steps": steps})


def step(at, send, a=(), b=(), drops=None, together=False, apart=False, before=()):
    """Frames sent into a port, those that have to leave by either port, and what the router has to count as dropped.

    A frame that has to leave is one, or a list of which it may be any: `together` when all have to be the same of theirs,
    `apart` when they may not all be. A frame of `before` shows that the router has not come to it yet: all is sent again.
    """

    def texts(frames):
        return [[bytes(one).hex() for one in (frame if isinstance(frame, list) else [frame])] for frame in frames]

    return {
        "at": at,
        "send": [bytes(frame).hex() for frame in send],
        "expect": {"a": texts(a), "b": texts(b)},
        "drops": drops or {},
        "together": together,
        "apart": apart,
        "before": [bytes(frame).hex() for frame in before],
    }


def from_a(packet, to=ROUTER_A):
    return Ether(bytes(Ether(src=HOST_A, dst=to) / packet))


def from_b(packet):
    return Ether(bytes(Ether(src=HOST_B, dst=ROUTER_B) / packet))


def udp4(to=B4, source=A4, size=30, **fields):
    return IP(src=source, dst=to, **fields) / UDP(sport=4000, dport=5000) / Raw(b"\x5a" * size)


def udp6(to=B6, source=A6, size=30, **fields):
    return IPv6(src=source, dst=to, **fields) / UDP(sport=4000, dport=5000) / Raw(b"\x5a" * size)


def forwarded(frame, source=ROUTER_B, destination=HOST_B):
    """The frame after one hop."""
    packet = frame.copy()
    packet[Ether].src, packet[Ether].dst = source, destination
    if IP in packet:
        packet[IP].ttl -= 1
        del packet[IP].chksum
    else:
        packet[IPv6].hlim -= 1
    return Ether(bytes(packet))


def error4(frame, kind, code, word=0, source=US_A4, to=HOST_A, by=ROUTER_A):
    """An ICMP error: RFC 792's form; precedence 6 and 576 octets at most as RFC 1812, sections 4.3.2.5 and 4.3.2.3."""
    quoted = bytes(frame[IP])[: frame[IP].len][: ERROR_MAX_V4 - 28]
    message = struct.pack("!BBHI", kind, code, 0, word) + quoted
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    header = IP(src=source, dst=frame[IP].src, proto=1, tos=0xC0, id=0, ttl=64)
    return Ether(src=by, dst=to) / header / Raw(message)


def error6(frame, kind, code, word=0, source=US_A6, to=HOST_A, by=ROUTER_A):
    """An ICMPv6 error, 1280 octets at most (RFC 4443, section 2.4 (c))."""
    quoted = bytes(frame[IPv6])[: ERROR_MAX_V6 - 48]
    message = struct.pack("!BBHI", kind, code, 0, word) + quoted
    header = IPv6(src=source, dst=frame[IPv6].src, nh=58, hlim=64, plen=len(message))
    sum_ = in6_chksum(58, header, message)
    return Ether(src=by, dst=to) / header / Raw(message[:2] + struct.pack("!H", sum_) + message[4:])


def dropped(name, covers, reason, *packets):
    frames = [packet if Ether in packet else from_a(packet) for packet in packets]
    case(name, covers, step("a", frames, drops={reason: len(frames)}))


def forwarding():
    for name, frame in [
        ("UDP", from_a(udp4())),
        ("an odd length", from_a(udp4(size=31))),
        ("TCP", from_a(IP(src=A4, dst=B4) / TCP(sport=1, dport=2, flags="S"))),
        ("options", from_a(udp4(options=[b"\x94\x04\x00\x00"]))),
        ("all bits of the type of service", from_a(udp4(tos=0xFF))),
        ("the last hop but one", from_a(udp4(ttl=2))),
        ("the longest life", from_a(udp4(ttl=255))),
        ("a checksum that carries over", from_a(udp4(ttl=64, id=0xFFFF))),
        ("a piece", from_a(IP(src=A4, dst=B4, flags="MF", frag=3, id=9) / Raw(b"x" * 24))),
    ]:
        covers = ["1812", "1812 5.3.1", "1624", "1071", "1071 2"]
        case(f"forwarded: IPv4, {name}", covers, step("a", [frame], b=[forwarded(frame)]))
    for ttl in range(2, 256):
        # RFC 1624: also if a checksum of zeros or ones results.
        frame = from_a(udp4(ttl=ttl, id=0xBEEF - (ttl << 8) & 0xFFFF))
        case(f"forwarded: TTL {ttl}", ["1624"], step("a", [frame], b=[forwarded(frame)]))
    for name, frame in [
        ("UDP", from_a(udp6())),
        ("the last hop but one", from_a(udp6(hlim=2))),
        ("traffic class and flow label", from_a(udp6(tc=0xFF, fl=0xABCDE))),
        ("an extension header", from_a(IPv6(src=A6, dst=B6) / IPv6ExtHdrDestOpt() / UDP(sport=4, dport=5))),
        ("nothing next", from_a(IPv6(src=A6, dst=B6, nh=59))),
    ]:
        case(f"forwarded: IPv6, {name}", ["8200", "8200 3", "8200 4.7"], step("a", [frame], b=[forwarded(frame)]))
    padded = Ether(bytes(from_a(udp4(size=1))) + b"\0" * 17)
    case("forwarded: a padded frame", ["1812 5.2.2"], step("a", [padded], b=[forwarded(padded)]))


def longest_prefix():
    # 10.50.0.0/16 leads to the first way, 10.50.1.0/24 to the second, 10.50.1.7/32 to the first; IPv6 likewise.
    for to, way in [("10.50.0.255", FIRST_WAY), ("10.50.1.0", SECOND_WAY), ("10.50.1.7", FIRST_WAY), ("10.50.2.0", FIRST_WAY)]:
        frame = from_a(udp4(to))
        case(f"longest prefix: {to}", ["1812 5.2.4.3"], step("a", [frame], b=[forwarded(frame, destination=way)]))
    for to, way in [("2001:db8:50::1", FIRST_WAY), ("2001:db8:50:1::", SECOND_WAY), ("2001:db8:50:1::7", FIRST_WAY)]:
        frame = from_a(udp6(to))
        case(f"longest prefix: {to}", ["4291 2.3"], step("a", [frame], b=[forwarded(frame, destination=way)]))
    # Global addresses, local ones, and others that are routed all the same.
    for to, covers in [("2001:db8:50::1", "4291 2.4"), ("fd00:50::1", "4193"), ("100:0:50::1", "4291 2.4")]:
        for source in (A6, "fd00:51::1", "100:0:51::1"):
            frame = from_a(udp6(to, source=source))
            case(f"routed: from {source} to {to}", [covers], step("a", [frame], b=[forwarded(frame, destination=FIRST_WAY)]))


def several_ways():
    def either(frame):
        return [forwarded(frame, destination=way) for way in (FIRST_WAY, SECOND_WAY)]

    flow = [from_a(udp4("10.99.0.1", id=n)) for n in range(32)]
    case("a flow takes one way", ["2992"], step("a", flow, b=[either(frame) for frame in flow], together=True))
    flows = [from_a(udp4(f"10.99.1.{n}")) for n in range(32)]
    case("flows take all ways", ["2992"], step("a", flows, b=[either(frame) for frame in flows], apart=True))
    # One label is one flow, for any ports; labels distinguish flows with the same ports.
    label = [from_a(IPv6(src=A6, dst="2001:db8:99::1", fl=77) / UDP(sport=n, dport=9)) for n in range(1, 33)]
    case("a flow label is a flow", ["6438"], step("a", label, b=[either(frame) for frame in label], together=True))
    labels = [from_a(IPv6(src=A6, dst="2001:db8:99::1", fl=n) / UDP(sport=5, dport=9)) for n in range(1, 33)]
    case("flow labels are flows", ["6438"], step("a", labels, b=[either(frame) for frame in labels], apart=True))


def life_is_over():
    for ttl in (0, 1):
        frame = from_a(udp4(ttl=ttl))
        case(f"TTL {ttl}", ["792", "1812 4.3", "1812 5.3.1"], step("a", [frame], a=[error4(frame, 11, 0)]))
        frame = from_a(udp6(hlim=ttl))
        case(f"hop limit {ttl}", ["4443", "8200 3", "8200 8.1"], step("a", [frame], a=[error6(frame, 3, 0)]))


def no_way():
    frame = from_a(udp4("10.200.0.1"))
    case("no IPv4 route", ["1812 5.2.7.1", "792", "1340"], step("a", [frame], a=[error4(frame, 3, 0)]))
    frame = from_a(udp6("2001:db8:dead::1"))
    case("no IPv6 route", ["4443 3.1"], step("a", [frame], a=[error6(frame, 1, 0)]))
    frame = from_a(udp4("203.0.113.1"))
    case("prohibited", ["1812 5.2.7.1"], step("a", [frame], a=[error4(frame, 3, 13)]))
    frame = from_a(udp6("2001:db8:f0::1"))
    case("prohibited, IPv6", ["4443 3.1"], step("a", [frame], a=[error6(frame, 1, 1)]))
    frame = from_a(udp4("203.0.113.65"))
    case("unreachable", ["1812 5.2.7.1"], step("a", [frame], a=[error4(frame, 3, 1)]))
    dropped("a blackhole", ["1812 5.2.7.1"], "blackhole", udp4("203.0.113.130"))
    dropped("a blackhole, IPv6", ["4443 3.1"], "blackhole", udp6("2001:db8:f1::1"))
    frame = from_a(udp4(US_A4))
    case("a closed port", ["1812 4.3"], step("a", [frame], a=[error4(frame, 3, 3)]))
    frame = from_a(IP(src=A4, dst=US_B4, proto=253) / Raw(b"?" * 9))
    case("an unsupported protocol", ["1812 4.3"], step("a", [frame], a=[error4(frame, 3, 2)]))
    frame = from_a(udp6(US_A6))
    case("a closed port, IPv6", ["4443"], step("a", [frame], a=[error6(frame, 1, 4)]))


def too_large():
    # 10.40.0.9 is behind an MTU of 600, 2001:db8:41::9 behind one of 1280.
    small, vlan = "02:00:00:00:00:4b", Dot1Q(vlan=40)
    frame = from_a(udp4("10.40.0.9", size=900, flags="DF"))
    covers = ["1191", "1812 4.3.2.3", "1812 4.3.2.5"]
    case("too large and not to be fragmented", covers, step("a", [frame], a=[error4(frame, 3, 4, 600)]))
    frame = from_a(udp6("2001:db8:41::9", size=1400))
    case("too large for a link, IPv6", ["8201", "4443 2.4 (c)"], step("a", [frame], a=[error6(frame, 2, 0, 1280)]))
    frame = from_a(udp4("10.40.0.9", size=572))
    whole = forwarded(frame, source=small)
    tagged = Ether(src=small, dst=HOST_B) / vlan / whole[IP]
    case("just small enough", ["791 3.2"], step("a", [frame], b=[tagged]))

    def pieces(frame):
        whole = forwarded(frame, source=small)
        return [Ether(src=small, dst=HOST_B) / vlan / piece for piece in fragment(whole[IP], fragsize=576)]

    frame = from_a(udp4("10.40.0.9", size=1400, id=7))
    case("fragmented", ["791 3.2", "1812 4.2.2.7"], step("a", [frame], b=pieces(frame)))
    # A fragment that is not the last stays one.
    frame = from_a(IP(src=A4, dst="10.40.0.9", id=8, flags="MF", frag=100) / Raw(bytes(range(200)) * 5))
    expected = []
    for at, size, more in [(0, 576, 1), (576, 424, 1)]:
        header = IP(src=A4, dst="10.40.0.9", id=8, flags=more, frag=100 + at // 8, ttl=63, proto=0)
        expected.append(Ether(src=small, dst=HOST_B) / vlan / header / Raw((bytes(range(200)) * 5)[at : at + size]))
    case("a fragment is fragmented again", ["791 3.1", "791 3.2"], step("a", [frame], b=expected))
    # Options: record route (not copied) only in the first fragment, router alert (copied) in all.
    alert, record = b"\x94\x04\x00\x00", b"\x07\x07\x04\x00\x00\x00\x00"
    data = bytes(range(250)) * 4
    frame = from_a(IP(src=A4, dst="10.40.0.9", id=9, proto=253, options=[alert + record + b"\0"]) / Raw(data))
    first = IP(src=A4, dst="10.40.0.9", id=9, proto=253, ttl=63, flags="MF", options=[alert + record + b"\0"])
    room = (600 - 32) // 8 * 8
    rest = IP(src=A4, dst="10.40.0.9", id=9, proto=253, ttl=63, frag=room // 8, options=[alert])
    expected = [first / Raw(data[:room]), rest / Raw(data[room:])]
    expected = [Ether(src=small, dst=HOST_B) / vlan / piece for piece in expected]
    case("options in fragments", ["791 3.1"], step("a", [frame], b=expected))
    far = from_a(IP(src=A4, dst="10.40.0.9", flags="MF", frag=8189) / Raw(b"x" * 1000))
    case("a fragment beyond the largest packet", ["791 3.1"], step("a", [far], drops={"fragment-offset": 1}))


def echo():
    def pair(to, source, router, host, at, **fields):
        request = IP(src=source, dst=to, **fields) / ICMP(id=7, seq=9) / Raw(b"are you there?")
        fields = {**fields, "tos": fields.get("tos", 0) & 0xFC, "ttl": 64}
        reply = IP(src=to, dst=source, **fields) / ICMP(type=0, id=7, seq=9) / Raw(b"are you there?")
        return Ether(src=host, dst=router) / request, Ether(src=router, dst=host) / reply

    request, reply = pair(US_A4, A4, ROUTER_A, HOST_A, "a", id=4711, ttl=3)
    covers = ["792", "1122 3.2.2.6", "6864 4.3", "1340"]
    case("echo", covers, step("a", [request], a=[reply]))
    request, reply = pair(US_B4, A4, ROUTER_A, HOST_A, "a", flags="DF")
    case("echo of another interface's address", ["1122 3.2.2.6"], step("a", [request], a=[reply]))
    request, reply = pair(US_A4, A4, ROUTER_A, HOST_A, "a", tos=0xB9 | 2)
    case("echo keeps the request's service class", ["1812 4.3.2.5", "3168 5"], step("a", [request], a=[reply]))
    # On a link with two hosts there is no broadcast address: both addresses are hosts (RFC 3021).
    request = Ether(src=HOST_A, dst="02:00:00:00:00:5a") / Dot1Q(vlan=50) / IP(src="10.0.0.1", dst="10.0.0.0") / ICMP(id=1)
    reply = Ether(src="02:00:00:00:00:5a", dst=HOST_A) / Dot1Q(vlan=50) / IP(src="10.0.0.0", dst="10.0.0.1") / ICMP(type=0, id=1)
    case("a link of two", ["3021"], step("a", [request], a=[reply]))
    for to in (US_A6, US_B6, LINK_LOCAL_A):
        ip = IPv6(src=A6, dst=to, tc=0xB9) / ICMPv6EchoRequest(id=7, seq=9, data=b"and you?")
        back = IPv6(src=to, dst=A6, tc=0xB8, hlim=64) / ICMPv6EchoReply(id=7, seq=9, data=b"and you?")
        reply = Ether(src=ROUTER_A, dst=HOST_A) / back
        case(f"echo of {to}", ["4443 4.2", "4443 2.1", "8200 8.1", "4291 A"], step("a", [from_a(ip)], a=[reply]))


def no_errors():
    """Packets that cause no error; the last frame shows that a similar packet causes one."""
    shown = from_a(udp4("10.200.0.1", id=12345))
    for name, frame, covers in [
        ("an ICMP error", from_a(IP(src=A4, dst="10.200.0.1") / ICMP(type=11) / Raw(b"x" * 28)), ["1122 3.2.2"]),
        ("a later fragment", from_a(IP(src=A4, dst="10.200.0.1", frag=5) / Raw(b"x" * 28)), ["1812 4.3.2.7"]),
    ]:
        case(f"no error about {name}", covers, step("a", [frame, shown], a=[error4(shown, 3, 0)]))
    question = from_a(IP(src=A4, dst="10.200.0.1") / ICMP(type=8) / Raw(b"x" * 8))
    case("an error about an echo request", ["1122 3.2.2"], step("a", [question], a=[error4(question, 3, 0)]))
    # In a frame to a group, to a host address of the router without a listener.
    group = from_a(udp4("224.0.0.1"), to="01:00:5e:00:00:01")
    case("no error to a group", ["1812 4.3.2.7", "5771 4"], step("a", [group, shown], a=[error4(shown, 3, 0)]))
    shown6 = from_a(udp6("2001:db8:dead::1", fl=5))
    error = from_a(IPv6(src=A6, dst="2001:db8:dead::1", nh=58) / Raw(b"\x01\0\0\0" + b"\0" * 40))
    case("no error about an error, IPv6", ["4443 2.4 (e)"], step("a", [error, shown6], a=[error6(shown6, 1, 0)]))
    group = from_a(udp6("ff02::1"), to="33:33:00:00:00:01")
    covers = ["4443 2.4 (e)", "4443 2.4 (e.3)", "4291 2.7"]
    case("no error to a group, IPv6", covers, step("a", [group, shown6], a=[error6(shown6, 1, 0)]))


def damaged():
    def broken(**fields):
        return from_a(udp4(**fields))

    short = Ether(bytes(from_a(udp4()))[:30])
    version = bytearray(bytes(from_a(udp4())))
    version[14] = 0x55
    long = broken(len=400)
    header = bytearray(bytes(from_a(udp4())))
    header[14] = 0x44
    dropped("damaged headers", ["1812 5.2.2"], "header-error", short, Ether(bytes(version)), long, Ether(bytes(header)))
    dropped("a wrong checksum", ["1071", "1071 2"], "checksum-error", broken(chksum=0x1234))
    long = from_a(udp6(plen=400))
    short = Ether(bytes(from_a(udp6()))[:50])
    dropped("damaged headers, IPv6", ["8200 3"], "header-error", long, short)
    routes = [IP(src=A4, dst=B4, options=[bytes([kind, 7, 4, 10, 0, 0, 1, 0])]) / UDP() for kind in (131, 137)]
    dropped("source routes", ["7126 4.3", "7126 4.4", "791 3.1"], "source-route", *routes)


def martians():
    sources = ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
    covers = ["1812 5.3.7", "6890", "1122 3.2.1.3"]
    dropped("invalid sources", covers, "martian", *[udp4(source=source) for source in sources])
    dropped("invalid destinations", covers, "martian", *[udp4(to) for to in ("0.1.2.3", "127.0.0.1", "250.0.0.1")])
    # There is a route to both, but they are link-local.
    dropped("link-local addresses", ["3927", "3927 7"], "martian", udp4("169.254.9.9"), udp4(source="169.254.1.1"))
    sources = ["::", "::1", "::ffff:192.0.2.7", "ff02::1"]
    covers = ["4291", "4291 2.5", "6890 2.2.3"]
    dropped("invalid sources, IPv6", covers, "martian", *[udp6(source=source) for source in sources])
    dropped("link-local addresses, IPv6", ["4291 2.5.6"], "martian", udp6(source="fe80::7"))
    dropped("groups without forwarding", ["1812 5.3.4"], "multicast", from_a(udp4("239.1.1.1"), to="01:00:5e:01:01:01"))
    dropped("groups without forwarding, IPv6", ["4291 2.7"], "multicast", from_a(udp6("ff0e::1"), to="33:33:00:00:00:01"))
    dropped("a unicast packet in a broadcast frame", ["1812 5.3.4"], "broadcast-frame", from_a(udp4(), to=BROADCAST))
    dropped("the broadcast address of a link", ["2644"], "blackhole", udp4("198.51.100.255"))


def ways_back():
    # VLAN 20 requires the way back through the same interface, VLAN 30 any way back.
    def tagged(vlan, packet, mac):
        return Ether(src=HOST_A, dst=mac) / Dot1Q(vlan=vlan) / packet

    def onward(frame):
        return forwarded(Ether(src=HOST_A, dst=ROUTER_A) / frame[IP])

    strict, loose = "02:00:00:00:00:2a", "02:00:00:00:00:3a"
    good = Ether(bytes(tagged(20, udp4(source="10.20.0.7"), strict)))
    case("strict, and the way back is this one", ["3704"], step("a", [good], b=[onward(good)]))
    for name, vlan, source, mac in [("strict, another way", 20, A4, strict), ("strict, none", 20, "10.200.0.1", strict), ("loose, none", 30, "10.200.0.1", loose)]:
        case(name, ["3704"], step("a", [tagged(vlan, udp4(source=source), mac)], drops={"urpf": 1}))
    other = Ether(bytes(tagged(30, udp4(source=A4), loose)))
    case("loose, another way", ["3704"], step("a", [other], b=[onward(other)]))


def arp():
    host, mac = "192.0.2.20", "02:00:00:00:00:20"
    question = Ether(src=mac, dst=BROADCAST) / ARP(hwsrc=mac, psrc=host, pdst=US_A4)
    answer = Ether(src=ROUTER_A, dst=mac) / ARP(op=2, hwsrc=ROUTER_A, psrc=US_A4, hwdst=mac, pdst=host)
    case("ARP request", ["826", "1122 2.3.2.1"], step("a", [question], a=[answer]))
    # The sender of a request is known from it, and need not be resolved.
    frame = from_b(udp4(to=host, source=B4))
    case("the sender of a request is known", ["826"], step("b", [frame], a=[forwarded(frame, ROUTER_A, mac)]))
    background.append(Ether(src=ROUTER_A, dst=mac) / ARP(op=1, hwsrc=ROUTER_A, psrc=US_A4, hwdst="00:00:00:00:00:00", pdst=host))
    others = Ether(src=mac, dst=BROADCAST) / ARP(hwsrc=mac, psrc=host, pdst="192.0.2.99")
    claim = Ether(src=mac, dst=BROADCAST) / ARP(op=2, hwsrc=mac, psrc=US_A4, pdst=US_A4)
    case("ARP requests for others, and claims of our address", ["826", "5227"], step("a", [others, claim, question], a=[answer]))
    # The first packet waits for the answer.
    unknown, mac = "198.51.100.30", "02:00:00:00:00:30"
    question = Ether(src=ROUTER_B, dst=BROADCAST) / ARP(op=1, hwsrc=ROUTER_B, psrc=US_B4, hwdst="00:00:00:00:00:00", pdst=unknown)
    background.append(question)
    background.append(Ether(src=ROUTER_B, dst=mac) / question[ARP])
    reply = Ether(src=mac, dst=ROUTER_B) / ARP(op=2, hwsrc=mac, psrc=unknown, hwdst=ROUTER_B, pdst=US_B4)
    waiting = [from_a(udp4(unknown, id=n)) for n in range(3)]
    onward = [forwarded(frame, destination=mac) for frame in waiting]
    case("ARP before the first packet", ["826", "1122 2.3.2.1", "1122 2.3.2.2"], step("a", waiting, b=[question]), step("b", [reply], b=onward))
    # An address without a host.
    nobody = "198.51.100.31"
    question = Ether(src=ROUTER_B, dst=BROADCAST) / ARP(op=1, hwsrc=ROUTER_B, psrc=US_B4, hwdst="00:00:00:00:00:00", pdst=nobody)
    frame = from_a(udp4(nobody))
    case("no answer to ARP", ["1812 4.3.3.1"], step("a", [frame], a=[error4(frame, 3, 1)], b=[question] * 3))


def neighbour_discovery():
    def solicitation(host, mac, target, to=None, hlim=255, option=True):
        low = int(target.split(":")[-1] or "0", 16)
        group, group_mac = f"ff02::1:ff00:{low:x}", f"33:33:ff:00:00:{low:02x}"
        packet = IPv6(src=host, dst=to or group, hlim=hlim) / ICMPv6ND_NS(tgt=target)
        packet = packet / ICMPv6NDOptSrcLLAddr(lladdr=mac) if option else packet
        return Ether(src=mac, dst=ROUTER_A if to else group_mac) / packet

    def advertisement(host, mac, target, solicited=1):
        packet = IPv6(src=target, dst=host, hlim=255) / ICMPv6ND_NA(tgt=target, R=1, S=solicited, O=1)
        return Ether(src=ROUTER_A, dst=mac) / packet / ICMPv6NDOptDstLLAddr(lladdr=ROUTER_A)

    host, mac = "2001:db8:a::20", "02:00:00:00:00:20"
    answer = advertisement(host, mac, US_A6)
    covers = ["4861", "4861 4.3", "4861 4.4", "4861 7.2", "4861 7.2.3", "4861 7.2.4", "4443 2.3", "8200 8.1"]
    case("solicitation to our group", [*covers, "4291 2.7.1", "2464 7"], step("a", [solicitation(host, mac, US_A6)], a=[answer]))
    case("unicast solicitation", covers, step("a", [solicitation(host, mac, US_A6, to=US_A6)], a=[answer]))
    background.append(
        Ether(src=ROUTER_A, dst=mac)
        / IPv6(src=US_A6, dst=host, hlim=255)
        / ICMPv6ND_NS(tgt=host)
        / ICMPv6NDOptSrcLLAddr(lladdr=ROUTER_A)
    )
    # From another link, a wrong code, a wrong checksum, a group as target, an option without length.
    good = solicitation(host, mac, US_A6)
    wrong_code, wrong_sum = good.copy(), good.copy()
    wrong_code[ICMPv6ND_NS].code = 1
    wrong_sum[ICMPv6ND_NS].cksum = 1
    group = good.copy()
    group[ICMPv6ND_NS].tgt = "ff02::1"
    length = good.copy()
    length[ICMPv6NDOptSrcLLAddr].len = 0
    bad = [solicitation(host, mac, US_A6, hlim=254), wrong_code, wrong_sum, group, length]
    unspecified = solicitation("::", mac, US_A6)
    case("invalid solicitations", ["4861 7.1", "4861 7.1.1"], step("a", [*bad, unspecified, good], a=[answer]))
    # A host is about to use our address: the router announces the address to all nodes.
    probe = solicitation("::", "02:00:00:00:00:21", US_A6, option=False)
    announcement = IPv6(src=US_A6, dst="ff02::1", hlim=255) / ICMPv6ND_NA(tgt=US_A6, R=1, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=ROUTER_A)
    case("our address is taken", ["4862 5.4.3"], step("a", [probe], a=[Ether(src=ROUTER_A, dst="33:33:00:00:00:01") / announcement]))

    # The first packet waits for the answer.
    unknown, mac = "2001:db8:b::30", "02:00:00:00:00:30"

    def asked(target, low):
        packet = IPv6(src=US_B6, dst=f"ff02::1:ff00:{low:x}", hlim=255) / ICMPv6ND_NS(tgt=target)
        return Ether(src=ROUTER_B, dst=f"33:33:ff:00:00:{low:02x}") / packet / ICMPv6NDOptSrcLLAddr(lladdr=ROUTER_B)

    def answered(target, mac, **flags):
        packet = IPv6(src=target, dst=US_B6, hlim=flags.pop("hlim", 255)) / ICMPv6ND_NA(tgt=target, R=0, **flags)
        return Ether(src=mac, dst=ROUTER_B) / packet / ICMPv6NDOptDstLLAddr(lladdr=mac)

    question = asked(unknown, 0x30)
    background.append(question)
    frame = from_a(udp6(unknown))
    covers = ["4861 7.2", "4861 7.2.5", "4861 7.3.2", "4291 2.7.1", "2464 7"]
    case("discovery before the first packet", covers, step("a", [frame], b=[question]), step("b", [answered(unknown, mac, S=1, O=1)], b=[forwarded(frame, destination=mac)]))
    # Another host claims the address: it is accepted only with `override`, and never from another link.
    other = "02:00:00:00:00:31"
    for claimed in (mac, other):
        background.append(Ether(src=ROUTER_B, dst=claimed) / IPv6(src=US_B6, dst=unknown, hlim=255) / ICMPv6ND_NS(tgt=unknown) / ICMPv6NDOptSrcLLAddr(lladdr=ROUTER_B))
    case("another host claims the address", ["4861 7.2.5", "4861 7.1.2"], step("b", [answered(unknown, other, S=0, O=0), answered(unknown, other, S=1, O=1, hlim=64)]), step("a", [frame], b=[forwarded(frame, destination=mac)]))
    old, new = forwarded(frame, destination=mac), forwarded(frame, destination=other)
    case("another host overrides the address", ["4861 7.2.5"], step("b", [answered(unknown, other, S=0, O=1)]), step("a", [frame], b=[new], before=[old]))
    nobody = "2001:db8:b::32"
    frame = from_a(udp6(nobody))
    case("no answer to solicitations", ["4861 10", "4443 3.1"], step("a", [frame], a=[error6(frame, 1, 3)], b=[asked(nobody, 0x32)] * 3))


# Requirements that single frames cannot show, and the tests that cover them.
ELSEWHERE = {
    "1812 4.3.2.8": "errors_are_limited",
    "4443 2.4 (f)": "errors_are_limited",
    "4861 6.3.2": "confirmed_neighbours_are_probed_again",
    "6583": "a_scan_is_bounded",
    "6583 7": "repeated_questions_are_bounded_rfc_6583",
    "6583 7.1": "the_least_useful_makes_space_rfc_6583",
    "4291 2.5.5.2": "the_kernel_gets_the_packets_of_the_reference_filter",
}

FOLDERS = ["tables/src/route", "tables/src/icmp", "tables/src/neighbour", "tables/src/fib", "switch/src/layer3"]
SECTION = r"[0-9A-Z]+(?:\.[0-9]+)*(?: \([a-z](?:\.[0-9])?\))?"
NAMED = re.compile(rf"RFC (\d+)(?:, (?:sections?|appendix) ({SECTION}(?:(?:,| to| and) {SECTION})*))?")


def named(crates):
    """Requirements that the code names, without tests."""
    found = set()
    for folder in FOLDERS:
        files = [pathlib.Path(crates, f"{folder}.rs"), *pathlib.Path(crates, folder).rglob("*.rs")]
        files = [file for file in files if "tests" not in file.with_suffix("").parts]
        assert files, f"no sources in {crates}/{folder}"
        for file in files:
            text = re.sub(r"\n\s*//[/!]? ?", " ", file.read_text())
            for match in NAMED.finditer(text):
                sections = re.split(r", | to | and ", match[2]) if match[2] else [""]
                found.update(f"{match[1]} {section}".strip() for section in sections)
    return found


def tests_there(crates, elsewhere):
    text = "".join(file.read_text() for file in pathlib.Path(crates).rglob("*.rs"))
    return {name for name in elsewhere.values() if f"fn {name}(" in text}


def main():
    for group in (forwarding, longest_prefix, several_ways, life_is_over, no_way, too_large, echo, no_errors, damaged):
        group()
    for group in (martians, ways_back, arp, neighbour_discovery):
        group()
    covered = {requirement for one in cases for requirement in one["covers"]}
    there = tests_there(sys.argv[1], ELSEWHERE)
    covered |= {requirement for requirement, test in ELSEWHERE.items() if test in there}
    wanted = named(sys.argv[1])
    document = {
        "cases": cases,
        "background": [bytes(frame).hex() for frame in background],
        "named": len(wanted),
        "uncovered": sorted(wanted - covered),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
