# SPDX-License-Identifier: Apache-2.0
"""Malformed frames that carry what rules drop, or a part of it, made by scapy: name, kind, whether rules alone let it in, and octets of
each, one per line, as JSON. An empty kind is a well-formed frame."""

import json

from scapy.all import IP, LLC, SNAP, TCP, UDP, Dot1AD, Dot1Q, Dot3, Ether, IPv6, IPv6ExtHdrDestOpt
from scapy.all import IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, Jumbo, Padding, Raw

SOURCE = "02:00:00:00:00:01"
DESTINATION = "02:00:00:00:00:02"
ETHER = Ether(src=SOURCE, dst=DESTINATION)
# Forty octets: a multiple of eight, as fragments need.
TELNET = TCP(sport=9, dport=23) / Raw(b"x" * 20)
OTHER = UDP(sport=9, dport=54) / Raw(b"x" * 16)
OPTION = IPv6ExtHdrDestOpt()


def four(payload=TELNET, **more):
    return IP(src="192.0.2.1", dst="198.51.100.9", **more) / payload


def six(*headers, **more):
    packet = IPv6(src="2001:db8::1", dst="2001:db8:1::9", **more)
    for header in headers:
        packet = packet / header
    return packet


def cut(octets, packet):
    """A frame with the first octets of a packet, whose headers describe the whole packet."""
    ethertype = 0x86DD if IPv6 in packet else 0x0800
    return Ether(src=SOURCE, dst=DESTINATION, type=ethertype) / Raw(bytes(packet)[:octets])


def changed(packet, at, octet):
    octets = bytearray(bytes(packet))
    octets[at] = octet
    ethertype = 0x86DD if IPv6 in packet else 0x0800
    return Ether(src=SOURCE, dst=DESTINATION, type=ethertype) / Raw(bytes(octets))


def extension(kind, following, then):
    """An extension header of eight octets, in front of an IPv6 payload."""
    header = Raw(bytes([following, 0, 0, 0, 0, 0, 0, 0]) + bytes(then))
    return six(header, nh=kind)


def snap(ethertype, packet):
    llc = LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=ethertype)
    return Dot3(src=SOURCE, dst=DESTINATION) / llc / Raw(bytes(packet))


def options(octets, packet):
    """A packet with options of which scapy knows nothing."""
    header = bytearray(bytes(packet))
    length = len(header) + len(octets)
    header[0] = 0x45 + len(octets) // 4
    header[2:4] = length.to_bytes(2, "big")
    octets = bytes(header[:20]) + octets + bytes(header[20:])
    return Ether(src=SOURCE, dst=DESTINATION, type=0x0800) / Raw(octets)


CASES = [
    ("telnet", "", False, ETHER / four()),
    ("telnet over IPv6", "", False, ETHER / six(OPTION, TELNET)),
    ("VLAN 7", "", False, ETHER / Dot1Q(vlan=7) / four(OTHER)),
    ("other", "", True, ETHER / four(OTHER)),
    ("other, padded", "", True, ETHER / four(OTHER) / Padding(b"\0" * 20)),
    ("first fragment", "", True, ETHER / four(OTHER, flags="MF")),
    ("later fragment", "", True, ETHER / four(Raw(b"x" * 24), proto=6, frag=3)),
    ("eight extension headers", "", True, ETHER / six(*[OPTION] * 8, OTHER)),
    ("three tags", "too-many-tags", True,
     ETHER / Dot1AD(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=8) / four()),
    ("VLAN 7 behind a priority tag", "hidden-vlan", True,
     ETHER / Dot1Q(vlan=0, prio=3) / Dot1Q(vlan=7) / four(OTHER)),
    ("ends within a tag", "truncated-tag", True,
     Raw(bytes(ETHER / Dot1Q(vlan=7) / four(OTHER))[:15])),
    ("802.2 encapsulation", "snap", True, snap(0x0800, four())),
    ("802.2 encapsulation of IPv6", "snap", True, snap(0x86DD, six(TELNET))),
    ("19 octets of IPv4", "truncated-header", True, cut(19, four())),
    ("39 octets of IPv6", "truncated-header", True, cut(39, six(TELNET))),
    ("version 5", "ip-version", True, changed(four(), 0, 0x55)),
    ("version 4 of IPv6", "ip-version", True, changed(six(TELNET), 0, 0x40)),
    ("IHL 4", "header-length", True, changed(four(), 0, 0x44)),
    ("IHL beyond the packet", "packet-length", True, changed(four(TCP(sport=9, dport=23)), 0, 0x4F)),
    ("total length beyond the frame", "packet-length", False, ETHER / four(len=61)),
    ("total length 0", "packet-length", False, ETHER / four(len=0)),
    ("payload length beyond the frame", "packet-length", False, ETHER / six(TELNET, plen=41)),
    ("option of length 0", "options", False, options(b"\x07\0\0\0", four())),
    ("option of length 1", "options", False, options(b"\x83\x01\x04\0", four())),
    ("option beyond the header", "options", False, options(b"\x07\x07\x04\0", four())),
    ("jumbogram", "jumbogram", False,
     ETHER / six(IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=48)]), TELNET, plen=0)),
    ("payload length 0", "truncated-transport", False, ETHER / six(TELNET, plen=0)),
    ("truncated extension header", "truncated-extension", True,
     ETHER / six(IPv6ExtHdrDestOpt(len=99), TELNET)),
    ("nine extension headers", "too-many-extensions", True, ETHER / six(*[OPTION] * 9, TELNET)),
    ("hop-by-hop options in second place", "extension-order", False,
     ETHER / six(OPTION, IPv6ExtHdrHopByHop(), TELNET)),
    ("two fragment headers", "extension-order", True,
     ETHER / six(IPv6ExtHdrFragment(), IPv6ExtHdrFragment(offset=5), TELNET)),
    ("unknown extension header", "unknown-extension", True, ETHER / extension(253, 6, TELNET)),
    ("no transport header", "truncated-transport", True, ETHER / four(Raw(b""), proto=6)),
    ("transport header in the padding", "truncated-transport", False, ETHER / four(len=20)),
    ("tiny first fragment", "truncated-transport", True,
     ETHER / four(Raw(b""), proto=6, flags="MF")),
    ("first fragment without flags", "truncated-transport", False,
     ETHER / four(Raw(bytes(TELNET)[:8]), proto=6, flags="MF")),
    ("tiny first fragment of IPv6", "truncated-transport", True,
     ETHER / six(IPv6ExtHdrFragment(m=1), IPv6ExtHdrDestOpt(nh=6))),
    ("routing header in two fragments", "truncated-extension", True,
     ETHER / six(IPv6ExtHdrFragment(m=1, nh=43), Raw(b"\x06\x02" + b"\0" * 6))),
    ("fragment over the ports", "overlapping-fragment", True,
     ETHER / four(Raw(bytes(TELNET)), proto=6, frag=1)),
    ("fragment over the checksum", "overlapping-fragment", True,
     ETHER / four(Raw(bytes(TELNET)), proto=6, frag=2)),
    ("fragment of IPv6 over TCP", "overlapping-fragment", True,
     ETHER / six(IPv6ExtHdrFragment(nh=6, offset=1), Raw(bytes(TELNET)))),
    ("fragment of 21 octets", "fragment-length", False,
     ETHER / four(Raw(bytes(TELNET)[:21]), proto=6, flags="MF")),
    ("fragment beyond the longest packet", "fragment-end", True,
     ETHER / four(Raw(b"x" * 24), proto=6, frag=8191)),
    ("fragment beyond the longest payload", "fragment-end", True,
     ETHER / six(IPv6ExtHdrFragment(nh=6, offset=8191), Raw(b"x" * 24))),
    ("telnet behind a routing header", "", False, ETHER / six(IPv6ExtHdrRouting(type=4), TELNET)),
]

for name, kind, passes, frame in CASES:
    print(json.dumps([name, kind, passes, bytes(frame).hex()]))
