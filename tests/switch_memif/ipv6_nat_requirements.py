# SPDX-License-Identifier: Apache-2.0
"""Requirements of RFC 6146 and RFC 7915 (NAT64) and of RFC 6296 (prefix translation), as frames: those sent, and every frame that has to leave,
octet by octet.

scapy makes all frames, independently of the code. `ipv6_nat_requirements.py DIRECTORY nat64` or `prefixes` prints a document like that of
requirements.py. The NAT has two external ports (ipv6_nat_requirements.rs), and a mapping has that of the parity of the client's port.
"""

import ipaddress
import json
import pathlib
import re
import struct
import sys

sys.dont_write_bytecode = True
from nat_requirements import EVEN, ODD, OTHER, OWN, REMOTE, ROUTER_B, left, passes, received  # noqa: E402
from requirements import SECTION, case, cases, step, tests_there  # noqa: E402
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment  # noqa: E402
from scapy.layers.inet6 import (  # noqa: E402
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    in6_chksum,
)
from scapy.layers.l2 import Dot1Q, Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402
from scapy.utils import checksum  # noqa: E402

# A client of NAT64 and its endpoints inside and outside, a host that is no client, and the prefix of IPv4 hosts.
CLIENT, STRANGER, PREFIX = "2001:db8:1::5", "2001:db8:2::5", "2001:db8:64::"
FIRST, SECOND = (CLIENT, 5000), (CLIENT, 5001)
# Longest IPv6 packet of an IPv4 packet that may be fragmented, and headers of its fragments.
MTU, HEADERS = 1280, 48
# Longest IPv4 packet of an IPv6 packet that routers may fragment.
SHORT = 1260


def mapped(address):
    """The address of an IPv4 host in the prefix."""
    return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(PREFIX)) | int(ipaddress.IPv4Address(address))))


def mapped_end(end):
    address, port = end
    return mapped(address), port


# Payloads of both IP versions, by the ports: that of IPv6, then that of IPv4.


def udp(size=20, **fields_v4):
    def make(sport, dport):
        data = Raw(b"\x5a" * size)
        return UDP(sport=sport, dport=dport) / data, UDP(sport=sport, dport=dport, **fields_v4) / data

    return make


def tcp(flags, size=0):
    def make(sport, dport):
        segment = TCP(sport=sport, dport=dport, flags=flags, seq=7, ack=8) / Raw(b"\xa5" * size)
        return segment, segment.copy()

    return make


def echo(is_request, size=33):
    """Echo requests or replies, whose port is the identifier of the inside or external endpoint."""

    def make(sport, dport):
        data = b"\x11" * size
        layer, kind, identifier = (ICMPv6EchoRequest, 8, sport) if is_request else (ICMPv6EchoReply, 0, dport)
        return layer(id=identifier, seq=1, data=data), ICMP(type=kind, id=identifier, seq=1) / Raw(data)

    return make


def packet6(content, source, destination, hlim=64, extension=None, **fields):
    (from_, sport), (to, dport) = source, destination
    header = IPv6(src=from_, dst=to, hlim=hlim, **fields)
    return (header / extension if extension else header) / content(sport, dport)[0]


def packet4(content, source, destination, ttl=64, **fields):
    (from_, sport), (to, dport) = source, destination
    return IP(src=from_, dst=to, ttl=ttl, **fields) / content(sport, dport)[1]


def error6(source, destination, about, kind, code=0, word=0, hlim=64):
    message = struct.pack("!BBHI", kind, code, 0, word) + bytes(about)
    header = IPv6(src=source, dst=destination, nh=58, hlim=hlim, plen=len(message))
    return header / Raw(message[:2] + struct.pack("!H", in6_chksum(58, header, message)) + message[4:])


def error4(source, destination, about, kind, code=0, word=0, ttl=64):
    message = struct.pack("!BBHI", kind, code, 0, word) + bytes(about)
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    return IP(src=source, dst=destination, proto=1, ttl=ttl) / Raw(message)


def payload_of(packet):
    """The octets behind the IP header, which has no options."""
    return bytes(packet)[20 if IP in packet else 40 :]


def parts6(packet, identification, size):
    """Fragments of an IPv6 packet without extension headers, with up to so many octets of its payload."""
    whole = IPv6(bytes(packet))
    payload = payload_of(packet)
    parts = []
    for start in range(0, len(payload), size):
        header = IPv6(src=whole.src, dst=whole.dst, hlim=whole.hlim, tc=whole.tc)
        has_more = int(start + size < len(payload))
        part = IPv6ExtHdrFragment(nh=whole.nh, offset=start // 8, m=has_more, id=identification)
        parts.append(header / part / Raw(payload[start : start + size]))
    return parts


def parts4(packet, identification, size):
    """The same of an IPv4 packet."""
    packet.id = identification
    return [IP(bytes(one)) for one in fragment(packet, fragsize=size)]


def any_identification(played):
    """IPv4 packets that leave may have any identification, with the right header checksum. Fragments have the same one."""
    for frames in played["expect"].values():
        for one in frames:
            one[:] = [f"{octets[:36]}????{octets[40:48]}????{octets[52:]}" for octets in one]
    return {**played, "same": [36, 40]}


def outward(content, inside, external, remote, **fields_v4):
    """A packet of a client, and the packet to the server. A packet that may be fragmented has any identification."""
    played = passes("a", packet6(content, inside, mapped_end(remote)), "b", packet4(content, external, remote, ttl=63, **fields_v4))
    return played if fields_v4.get("flags") == "DF" else any_identification(played)


def inward(content, remote, external, inside, **fields_v4):
    """A packet of a server to an external endpoint, and the packet to the client."""
    return passes("b", packet4(content, remote, external, **fields_v4), "a", packet6(content, mapped_end(remote), inside, hlim=63))


def dropped(at, packet, reason):
    return step(at, [received(at, packet)], drops={reason: 1})


KINDS = [
    ("UDP", udp(), udp(), (REMOTE, 53)),
    ("UDP of an odd length", udp(21), udp(43), (REMOTE, 53)),
    ("TCP", tcp("S"), tcp("SA"), (REMOTE, 80)),
    ("TCP with data", tcp("PA", 31), tcp("A", 500), (REMOTE, 80)),
]


def sessions():
    for name, question, answer, remote in KINDS:
        steps = [outward(question, FIRST, (OWN, EVEN), remote), inward(answer, remote, (OWN, EVEN), FIRST, flags="DF")]
        covers = ["6146 3", "6146 3.1", "6146 3.5", "7915 4.1", "7915 5.1", "7915 4.5", "7915 5.5", "6052 2.1", "6052 2.2"]
        case(f"NAT64: {name} to a server, and its answer", covers, *steps)
    out = outward(echo(True), (CLIENT, 8), (OWN, EVEN), (REMOTE, 8))
    back = inward(echo(False), (REMOTE, 8), (OWN, EVEN), (CLIENT, 8), flags="DF")
    case("NAT64: an echo, and its reply", ["6146 3.5.3", "7915 4.2", "7915 5.2"], out, back)
    for name, content, section in (("UDP", udp(), "6146 3.5.1"), ("TCP", tcp("S"), "6146 3.5.2")):
        ways = ((REMOTE, 53), (REMOTE, 54), (OTHER, 80))
        steps = [outward(content, FIRST, (OWN, EVEN), remote) for remote in ways]
        case(f"NAT64: {name}: one external endpoint for all servers", [section], *steps)
        case(f"NAT64: {name}: parity of the port", ["6146 3.5.1.1"], outward(content, SECOND, (OWN, ODD), (REMOTE, 53)))
        ways = ((REMOTE, 9), (OTHER, 1000))
        steps = [inward(content, remote, (OWN, EVEN), FIRST) for remote in ways]
        case(f"NAT64: {name}: every IPv4 host reaches the mapping", [section], *steps)
    # Behind it, a packet that passes: an answer would have come first.
    unsolicited = step("b", [received("b", packet4(tcp("S"), (REMOTE, 80), (OWN, 4003)))])
    case("NAT64: TCP: no answer to an unsolicited SYN", ["6146 3.5.2.2"], unsolicited, inward(tcp("A"), (REMOTE, 80), (OWN, EVEN), FIRST))


def headers():
    marked = passes("a", packet6(udp(), FIRST, mapped_end((REMOTE, 53)), tc=0xB9, fl=0x12345), "b", packet4(udp(), (OWN, EVEN), (REMOTE, 53), ttl=63, tos=0xB9))
    back = passes("b", packet4(udp(), (REMOTE, 53), (OWN, EVEN), tos=0xB9), "a", packet6(udp(), mapped_end((REMOTE, 53)), FIRST, hlim=63, tc=0xB9))
    case("NAT64: traffic class and type of service stay, and a flow label ends", ["7915 4.1", "7915 5.1"], any_identification(marked), back)
    options = b"\x01\x01\x01\x00"
    case("NAT64: IPv4 options are left out", ["7915 4.1"], inward(udp(), (REMOTE, 53), (OWN, EVEN), FIRST, options=[options]))
    sent = packet6(udp(), FIRST, mapped_end((REMOTE, 53)), extension=IPv6ExtHdrDestOpt())
    leaves = packet4(udp(), (OWN, EVEN), (REMOTE, 53), ttl=63)
    case("NAT64: extension headers are left out", ["7915 5.1"], any_identification(passes("a", sent, "b", leaves)))
    fits, longer = udp(SHORT - 28), udp(SHORT - 27)
    steps = [outward(fits, FIRST, (OWN, EVEN), (REMOTE, 53)), outward(longer, FIRST, (OWN, EVEN), (REMOTE, 53), flags="DF", id=0)]
    case("NAT64: only short packets may be fragmented", ["7915 5.1"], *steps)
    case("NAT64: a long packet with DF is one packet", ["7915 4.1"], inward(udp(1300), (REMOTE, 53), (OWN, EVEN), FIRST, flags="DF"))


def checksums():
    for size in (0, 20, 21):
        content = udp(size, chksum=0)
        case(f"NAT64: a datagram of {size} octets without checksum gets one", ["7915 4.5"], inward(content, (REMOTE, 53), (OWN, EVEN), FIRST))
    part = packet4(udp(16, chksum=0), (REMOTE, 53), (OWN, EVEN), flags="MF", id=90)
    case("NAT64: a fragment of a datagram without checksum is dropped", ["6146 3.4", "7915 4.5"], dropped("b", part, "nat-fragment"))


def fragments():
    content, size = udp(60), 24
    sent = parts4(packet4(content, (REMOTE, 53), (OWN, EVEN)), 77, size)
    leave = parts6(packet6(content, mapped_end((REMOTE, 53)), FIRST, hlim=63), 77, size)
    assert len(sent) == len(leave) > 2
    played = step("b", [received("b", one) for one in sent], a=[left("a", one) for one in leave])
    case("NAT64: fragments of a server", ["6146 3.4", "7915 4.1"], played)
    sent = parts6(packet6(content, FIRST, mapped_end((REMOTE, 53))), 0x12345678, size)
    leave = parts4(packet4(content, (OWN, EVEN), (REMOTE, 53), ttl=63), 1, size)
    played = step("a", [received("a", one) for one in sent], b=[left("b", one) for one in leave])
    case("NAT64: fragments of a client", ["6146 3.4", "7915 5.1.1"], any_identification(played))
    sent = packet6(content, FIRST, mapped_end((REMOTE, 53)), extension=IPv6ExtHdrFragment(id=9))
    leaves = packet4(content, (OWN, EVEN), (REMOTE, 53), ttl=63)
    case("NAT64: a datagram in one fragment is a whole one", ["7915 5.1.1"], any_identification(passes("a", sent, "b", leaves)))
    long = udp(1340)
    sent = packet4(long, (REMOTE, 53), (OWN, EVEN), id=0x1234)
    leave = parts6(packet6(long, mapped_end((REMOTE, 53)), FIRST, hlim=63), 0x1234, (MTU - HEADERS) & ~7)
    assert len(leave) == 2 and len(leave[0]) <= MTU
    played = step("b", [received("b", sent)], a=[left("a", one) for one in leave])
    case("NAT64: a long packet without DF becomes fragments", ["7915 4.1"], played)
    part = packet6(echo(True, 32), (CLIENT, 8), mapped_end((REMOTE, 8)), extension=IPv6ExtHdrFragment(id=10, m=1))
    case("NAT64: fragments of ICMP are dropped", ["7915 5.1.1"], dropped("a", part, "nat-fragment"))


def hairpinning():
    for name, content in (("UDP", udp()), ("TCP", tcp("S"))):
        there = passes("a", packet6(content, FIRST, (mapped(OWN), ODD)), "a", packet6(content, (mapped(OWN), EVEN), SECOND, hlim=63))
        back = passes("a", packet6(content, SECOND, (mapped(OWN), EVEN)), "a", packet6(content, (mapped(OWN), ODD), FIRST, hlim=63))
        case(f"NAT64: {name}: clients reach one another by external endpoints", ["6146 3.8"], there, back)


# Type, code and second word of errors in IPv4 and in IPv6 (RFC 7915, section 4.2).
TO_V6 = [
    *(((3, code, 0), (1, 0, 0)) for code in (0, 1, 5, 6, 7, 8, 11, 12)),
    *(((3, code, 0), (1, 1, 0)) for code in (9, 10, 13, 15)),
    ((3, 2, 0), (4, 1, 6)),
    ((3, 3, 0), (1, 4, 0)),
    ((3, 4, 1300), (2, 0, 1320)),
    ((3, 4, 600), (2, 0, 1280)),
    ((11, 0, 0), (3, 0, 0)),
    ((11, 1, 0), (3, 1, 0)),
    *(((12, 0, old << 24), (4, 0, new)) for old, new in ((0, 0), (1, 1), (2, 4), (3, 4), (8, 7), (9, 6), (12, 8), (16, 24))),
]
# The same to IPv4 (section 5.2).
TO_V4 = [
    *(((1, code, 0), (3, 1, 0)) for code in (0, 2, 3)),
    ((1, 1, 0), (3, 10, 0)),
    ((1, 4, 0), (3, 3, 0)),
    ((2, 0, 1300), (3, 4, 1280)),
    ((3, 0, 0), (11, 0, 0)),
    ((3, 1, 0), (11, 1, 0)),
    *(((4, 0, old), (12, 0, new << 24)) for old, new in ((0, 0), (1, 1), (4, 2), (5, 2), (6, 9), (7, 8), (8, 12), (24, 16))),
    ((4, 1, 0), (3, 2, 0)),
]


def errors():
    contents = [
        ("UDP", udp(), udp(), FIRST, (REMOTE, 53)),
        ("TCP", tcp("S"), tcp("SA"), FIRST, (REMOTE, 80)),
        ("ICMP", echo(True), echo(False), (CLIENT, 8), (REMOTE, 8)),
    ]
    for name, question, answer, inside, remote in contents:
        is_udp = name == "UDP"
        opened = outward(question, inside, (OWN, EVEN), remote)
        theirs = packet4(question, (OWN, EVEN), remote, ttl=63, id=5)
        mine = packet6(question, inside, mapped_end(remote), hlim=63)
        steps = [
            passes("b", error4(OTHER, OWN, theirs, *old), "a", error6(mapped(OTHER), CLIENT, mine, *new, hlim=63))
            for old, new in (TO_V6 if is_udp else [((3, 4, 1300), (2, 0, 1320)), ((11, 0, 0), (3, 0, 0))])
        ]
        covers = ["7915 4.2", "7915 4.3", "6146 3.5.3"]
        case(f"NAT64: {name}: errors from outside are about the packet of the client", covers, opened, *steps)
        if is_udp:
            # The header and eight octets (RFC 792).
            cut = passes("b", error4(OTHER, OWN, bytes(theirs)[:28], 11), "a", error6(mapped(OTHER), CLIENT, bytes(mine)[:48], 3, hlim=63))
            case("NAT64: an error with a part of the packet", ["7915 4.3"], cut)
        theirs = packet4(answer, remote, (OWN, EVEN), ttl=63, id=0)
        mine = packet6(answer, mapped_end(remote), inside, hlim=63)
        steps = [
            any_identification(passes("a", error6(CLIENT, mapped(REMOTE), mine, *old), "b", error4(OWN, REMOTE, theirs, *new, ttl=63)))
            for old, new in (TO_V4 if is_udp else [((2, 0, 1300), (3, 4, 1280)), ((1, 4, 0), (3, 3, 0))])
        ]
        covers = ["7915 5.2", "7915 5.3", "6146 3.5.3"]
        case(f"NAT64: {name}: errors of the client are about the packet of the server", covers, *steps, inward(answer, remote, (OWN, EVEN), inside))
    theirs = packet4(udp(), (OWN, EVEN), (REMOTE, 53), ttl=63)
    mine = packet6(udp(), mapped_end((REMOTE, 53)), FIRST, hlim=63)
    steps = [dropped("b", error4(OTHER, OWN, theirs, 3, 14), "nat-icmp-type"), dropped("a", error6(CLIENT, mapped(REMOTE), mine, 1, 5), "nat-icmp-type")]
    case("NAT64: errors without translation are dropped, without an answer", ["7915 4.2", "7915 5.2", "7915 4.4", "7915 5.4"], *steps)


def refused():
    steps = [
        dropped("a", packet6(udp(), (mapped(OTHER), 5000), mapped_end((REMOTE, 53))), "nat-malformed"),
        dropped("a", packet6(udp(), (STRANGER, 5000), mapped_end((REMOTE, 53))), "nat-no-mapping"),
        dropped("a", IPv6(src=CLIENT, dst=mapped(REMOTE), nh=132) / Raw(b"\x00" * 20), "nat-protocol"),
    ]
    case("NAT64: sources of the prefix, hosts that are no clients, and other protocols", ["6146 3.5", "6146 5.4", "7915 5.4"], *steps)


# Pairs of prefixes, inside and outside. The second one has words of the interface identifier to adjust, and prefixes of different lengths.
PAIR, LONG_PAIR = ("fd01:203:405::/48", "2001:db8:1::/48"), ("fd02:0:0:1::/64", "2001:db8:61::/56")
INSIDE, NEIGHBOUR, LONG_INSIDE = "fd01:203:405:1::1234", "fd01:203:405:1::5", "fd02:0:0:1:ffff::5"
OUTSIDE, LONG_OUTSIDE = "2001:db8:f::9", "2001:db8:60::9"
# VLAN and MAC address of the second outside interface.
VLAN, ROUTER_VLAN = 60, "02:00:00:00:00:6b"


def add(values):
    """The sum in ones' complement arithmetic (RFC 1071)."""
    total = 0
    for value in values:
        total += value
        total = (total & 0xFFFF) + (total >> 16)
    return total


def words(address):
    return list(struct.unpack("!8H", address.packed))


def translated(address, pair):
    """The external address of an inside one, as RFC 6296, sections 3.1 to 3.5, computes it."""
    inside, outside = (ipaddress.IPv6Network(prefix) for prefix in pair)
    length = max(inside.prefixlen, outside.prefixlen)
    rest = int(ipaddress.IPv6Address(address)) & ((1 << (128 - length)) - 1)
    changed = words(ipaddress.IPv6Address(int(outside.network_address) | rest))
    sums = [add(words(prefix.network_address)) for prefix in (inside, outside)]
    adjustment = add([sums[0], ~sums[1] & 0xFFFF])
    at = 3 if length <= 48 else next(at for at in range(4, 8) if changed[at] != 0xFFFF)
    changed[at] = add([changed[at], adjustment]) % 0xFFFF
    return str(ipaddress.IPv6Address(struct.pack("!8H", *changed)))


# The example of RFC 6296, section 3.6.
assert translated(INSIDE, PAIR) == "2001:db8:1:d550::1234"


def tagged(frame):
    """The frame of the outside interface as one of the second outside interface."""
    source, destination = (ROUTER_VLAN if mac == ROUTER_B else mac for mac in (frame.src, frame.dst))
    return Ether(src=source, dst=destination) / Dot1Q(vlan=VLAN) / frame.payload


def prefixes():
    ways = [("the subnet", PAIR, INSIDE, OUTSIDE, lambda frame: frame), ("the interface identifier", LONG_PAIR, LONG_INSIDE, LONG_OUTSIDE, tagged)]
    for word, pair, host, remote, on_link in ways:
        external = translated(host, pair)

        def out(sent, leaves, on_link=on_link):
            return step("a", [received("a", sent)], b=[on_link(left("b", leaves))])

        def back(sent, leaves, on_link=on_link):
            return step("b", [on_link(received("b", sent))], a=[left("a", leaves)])

        for name, content in (("UDP", udp()), ("TCP", tcp("S")), ("an echo", echo(True)), ("UDP of an odd length", udp(31))):
            sent, leaves = (packet6(content, (source, 4000), (remote, 5000), hlim=hlim) for source, hlim in ((host, 64), (external, 63)))
            # RFC 6296, section 2.6: no checksum changes.
            assert bytes(sent)[40:] == bytes(leaves)[40:]
            sent_back, leaves_back = (packet6(content, (remote, 5000), (to, 4000), hlim=hlim) for to, hlim in ((external, 64), (host, 63)))
            case(f"prefixes: {name}, both ways, with {word} adjusted", ["6296 3", "6296 3.1"], out(sent, leaves), back(sent_back, leaves_back))
        without = IPv6(src=host, dst=remote) / UDP(sport=4000, dport=5000, chksum=0) / Raw(b"\x5a" * 9)
        leaves = without.copy()
        leaves.src, leaves.hlim = external, 63
        case(f"prefixes: no checksum stays none, with {word} adjusted", ["6296 3"], out(without, leaves))
        extended = [packet6(udp(), (source, 4000), (remote, 5000), hlim=hlim, extension=IPv6ExtHdrDestOpt()) for source, hlim in ((host, 64), (external, 63))]
        case(f"prefixes: extension headers stay, with {word} adjusted", ["6296 3"], out(*extended))
        pairs = [parts6(packet6(udp(60), (source, 4000), (remote, 5000), hlim=hlim), 7, 24) for source, hlim in ((host, 64), (external, 63))]
        case(f"prefixes: every fragment, with {word} adjusted", ["6296 3"], *(out(*pair_) for pair_ in zip(*pairs)))
        # Errors, and the packets in them, whole and cut.
        theirs, mine = (packet6(udp(), (source, 4000), (remote, 5000), hlim=63) for source in (external, host))
        steps = [back(error6(remote, external, bytes(theirs)[:octets], 3), error6(remote, host, bytes(mine)[:octets], 3, hlim=63)) for octets in (68, 48)]
        steps.append(back(error6(remote, external, theirs, 2, 0, 1300), error6(remote, host, mine, 2, 0, 1300, hlim=63)))
        case(f"prefixes: errors from outside are about the packet of the host, with {word} adjusted", ["6296 3"], *steps)
        mine, theirs = (packet6(udp(), (remote, 5000), (to, 4000), hlim=63) for to in (host, external))
        step_ = out(error6(host, remote, mine, 1, 4), error6(external, remote, theirs, 1, 4, hlim=63))
        case(f"prefixes: errors of a host are about the packet to its external address, with {word} adjusted", ["6296 3"], step_)
    external, neighbour = translated(INSIDE, PAIR), translated(NEIGHBOUR, PAIR)
    there = passes("a", packet6(udp(), (NEIGHBOUR, 1), (external, 2)), "a", packet6(udp(), (neighbour, 1), (INSIDE, 2), hlim=63))
    back_ = passes("a", packet6(udp(), (INSIDE, 2), (neighbour, 1)), "a", packet6(udp(), (external, 2), (NEIGHBOUR, 1), hlim=63))
    case("prefixes: inside hosts reach one another by external addresses", ["6296 3"], there, back_)
    case("prefixes: a subnet without translation", ["6296 3"], dropped("a", packet6(udp(), ("fd01:203:405:ffff::1", 1), (OUTSIDE, 2)), "prefix-address"))


# Requirements that single frames cannot show, and the tests that cover them.
ELSEWHERE = {
    "6052 3.1": "the_well_known_prefix_contains_global_addresses_only",
    "6146 4": "packets_of_both_directions_refresh_a_mapping",
    "6146 5.3": "a_client_has_a_limit_and_exhausted_ports_keep_what_is_there",
}
# Requirements that the code names as not met, or as those of other devices.
NOT_MET = {"6146 3.2", "7915 4.6", "7915 5.6"}
NAMED = re.compile(rf"RFC (6052|6146|6296|7915), sections? ({SECTION}(?:(?:, | and |, and ){SECTION})*)")
GROUPS = {
    "nat64": ("tables/src/nat64", (sessions, headers, checksums, fragments, hairpinning, errors, refused)),
    "prefixes": ("tables/src/nptv6", (prefixes,)),
}


def named(crates, folder):
    """Sections that the code names, without tests."""
    path = pathlib.Path(crates, folder)
    found = set()
    for file in (path.with_suffix(".rs"), *path.rglob("*.rs")):
        if "tests" not in file.with_suffix("").parts:
            text = re.sub(r"\n\s*//[/!]? ?", " ", file.read_text())
            for match in NAMED.finditer(text):
                found.update(f"{match[1]} {one}" for one in re.findall(SECTION, match[2]))
    return found


def main():
    crates, group = sys.argv[1:]
    folder, makers = GROUPS[group]
    for make in makers:
        make()
    covered = {requirement for one in cases for requirement in one["covers"]}
    there = tests_there(crates, ELSEWHERE)
    covered |= {requirement for requirement, test in ELSEWHERE.items() if test in there}
    wanted = named(crates, folder) - NOT_MET
    json.dump({"cases": cases, "background": [], "named": len(wanted), "uncovered": sorted(wanted - covered)}, sys.stdout)


if __name__ == "__main__":
    main()
