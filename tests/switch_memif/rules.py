# SPDX-License-Identifier: Apache-2.0
"""Frames to test rules with, made by scapy: name and octets of each, one per line, as JSON."""

import json

from scapy.all import ARP, ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, IPv6, IPv6ExtHdrDestOpt
from scapy.all import IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, Raw

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OUTSIDE = "192.0.2.1"
INSIDE = "10.0.0.1"
SIX = "2001:db8::1"
DATA = Raw(b"x" * 32)


def udp(source, port, **more):
    return IP(src=source, dst="198.51.100.9", **more) / UDP(sport=9, dport=port) / DATA


def tcp(source, port):
    return IP(src=source, dst="198.51.100.9") / TCP(sport=9, dport=port)


def six(*headers):
    packet = IPv6(src=SIX, dst="2001:db8:1::9")
    for header in headers:
        packet = packet / header
    return packet / DATA


FRAMES = {
    "dns": ETHER / udp(OUTSIDE, 53),
    "dns with options": ETHER / udp(OUTSIDE, 53, options=[b"\x07\x07\x04\0\0\0\0\0"]),
    "dns in a VLAN": ETHER / Dot1Q(vlan=9, prio=3) / udp(OUTSIDE, 53),
    "first piece of dns": ETHER / udp(OUTSIDE, 53, flags="MF"),
    "later piece of dns": ETHER / udp(OUTSIDE, 53, frag=4),
    "udp": ETHER / udp(OUTSIDE, 54),
    "telnet": ETHER / tcp(INSIDE, 23),
    "web": ETHER / tcp(INSIDE, 80),
    "web from outside": ETHER / tcp(OUTSIDE, 80),
    "ping": ETHER / IP(src=OUTSIDE, dst="198.51.100.9") / ICMP(),
    "web of IPv6": ETHER / six(TCP(sport=9, dport=443)),
    "web of IPv6 behind headers": ETHER
    / six(IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), TCP(sport=9, dport=80)),
    "first piece of web of IPv6": ETHER
    # With DATA, a multiple of eight octets.
    / six(IPv6ExtHdrFragment(nh=6, m=1, offset=0), TCP(sport=9, dport=80), Raw(b"yyyy")),
    "later piece of web of IPv6": ETHER
    / six(IPv6ExtHdrFragment(nh=6, offset=9), TCP(sport=9, dport=80)),
    "other port of IPv6": ETHER / six(TCP(sport=9, dport=444)),
    "arp": ETHER / ARP(psrc=OUTSIDE, pdst="192.0.2.2"),
    "VLAN 7": ETHER / Dot1Q(vlan=7) / udp(OUTSIDE, 54),
    "VLAN 7 outside": ETHER / Dot1AD(vlan=7) / Dot1Q(vlan=9) / udp(OUTSIDE, 54),
    "VLAN 7 inside": ETHER / Dot1AD(vlan=9) / Dot1Q(vlan=7) / udp(OUTSIDE, 54),
    "dns in two VLANs": ETHER / Dot1AD(vlan=9) / Dot1Q(vlan=8) / udp(OUTSIDE, 53),
    "damaged": Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x0800)
    / Raw(bytes(udp(OUTSIDE, 53))[:18]),
}

for name, frame in FRAMES.items():
    print(json.dumps([name, bytes(frame).hex()]))
