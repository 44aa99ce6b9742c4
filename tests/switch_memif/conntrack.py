# SPDX-License-Identifier: Apache-2.0
"""Exchanges of packets, and the state of each packet for a connection tracker.

Without arguments: a line of JSON for each packet, in order: name, side (0: client, 1: server), frame in hexadecimal, state in the switch
(`ours`) and in the kernel's connection tracking (`kernel`). If the two differ, `row` is the packet in the table of docs/connections.md.

With the names of two devices: sends the lines of standard input, a side and a frame in hexadecimal each, out of the device of the side."""

import json
import os
import socket
import struct
import sys

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
TCP, UDP = 6, 17
CLIENT, SERVER = 0, 1
# Client, server, and a router behind which the server is.
ADDRESSES = {
    4: ["10.0.0.1", "192.0.2.1", "192.0.2.9"],
    6: ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::9"],
}
MACS = [bytes.fromhex("020000000001"), bytes.fromhex("020000000002")]
WINDOW = 1000
STEPS = []
# States in the kernel that differ from those in the switch, with the rows of the table in docs/connections.md.
PICKED_UP = "new", "ACK of an unknown connection"
CHALLENGED = "established", "SYN with another number within a connection"
OLD_SYN = "new", "old SYN at the ports of a connection in TIME-WAIT"
AFTER_RESET = "established", "SYN after a reset by the other side"
BARE_RESET = "established", "reset without ACK as the answer to a SYN"
BARE_ACK = "established", "ACK without SYN as the answer to a SYN"
OTHER_RESET = "established", "reset that acknowledges an earlier SYN with another number"
OWN_RESET = "invalid", "reset with ACK by the client before an answer"
OWN_RESET_NUMBER = "new", "reset with another number by the client before an answer"
OTHER_KIND = "invalid", "SYN of the handshake again, with ACK instead of without, or the reverse"
CROSSED_ACK = "established", "ACK of another number after two SYNs that cross"
BEHIND_FIN = "established", "data, FIN or reset behind the FIN of the same side"
SERVER_AFTER_RESET = "invalid", "SYN of the server after a reset"
ANSWER_AFTER_RESET = "established", "SYN and ACK after a reset"
SENT_AFTER_RESET = "established", "segment that acknowledges data sent after a reset"
NOT_VERIFIED = "invalid", "packet with a wrong checksum"
ASSOCIATION = "invalid", "SCTP DATA without an association"
NEVER_SENT = "related", "ICMP error about TCP octets that were never sent"
TIMESTAMP = "new", "ICMP timestamp request"
REDIRECT = "related", "ICMP redirect about a packet of a connection"
REDIRECT_V6 = "invalid", "ICMPv6 redirect"
ITSELF = "new", "packet from an endpoint to itself"


def checksum(octets):
    """The Internet checksum (RFC 1071)."""
    octets += bytes(len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc32c(octets):
    """The checksum of SCTP (RFC 9260, appendix A)."""
    value = 0xFFFFFFFF
    for octet in octets:
        value ^= octet
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def packed(version, number):
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return socket.inet_pton(family, ADDRESSES[version][number])


def covered(version, ends, protocol, payload, at):
    """A payload with its checksum at an offset, over the pseudo-header."""
    source, destination = (packed(version, end) for end in ends)
    words = "!BBH" if version == 4 else "!xxBBI"
    pseudo = source + destination + struct.pack(words, 0, protocol, len(payload))
    value = checksum(pseudo + payload) or 0xFFFF
    return payload[:at] + struct.pack("!H", value) + payload[at + 2 :]


def packet(version, ends, protocol, payload):
    source, destination = (packed(version, end) for end in ends)
    if version == 6:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + source + destination + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0) + source + destination
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def step(name, side, octets, ours, differs=None):
    """Adds a packet from a side. Without `differs`, both have the same state."""
    kernel, row = differs or (ours, None)
    ethertype = b"\x08\x00" if octets[0] >> 4 == 4 else b"\x86\xdd"
    frame = MACS[1 - side] + MACS[side] + ethertype + octets
    frame += bytes(max(0, 60 - len(frame)))
    STEPS.append({"name": name, "side": side, "frame": frame.hex(), "ours": ours, "kernel": kernel, "row": row})


class Conversation:
    """Packets between client and server with one pair of ports."""

    port = 2000

    def __init__(self, name, version=4):
        Conversation.port += 1
        self.name, self.version, self.client = f"{name}, IPv{version}", version, Conversation.port

    def ports(self, side):
        return (self.client, 80) if side == CLIENT else (80, self.client)

    def add(self, what, side, octets, ours, differs=None):
        step(f"{self.name}: {what}", side, octets, ours, differs)

    def segment(self, side, flags, sequence, acknowledgement=0, data=b""):
        fields = (*self.ports(side), sequence, acknowledgement, 0x50, flags, WINDOW, 0, 0)
        octets = struct.pack("!HHIIBBHHH", *fields) + data
        ends = (side, 1 - side)
        return packet(self.version, ends, TCP, covered(self.version, ends, TCP, octets, 16))

    def tcp(self, what, side, flags, sequence, acknowledgement, ours, differs=None, data=b""):
        self.add(what, side, self.segment(side, flags, sequence, acknowledgement, data), ours, differs)

    def open(self):
        """A handshake. The next numbers are 101 of the client and 501 of the server."""
        self.tcp("SYN", CLIENT, SYN, 100, 0, "new")
        self.tcp("SYN and ACK", SERVER, SYN | ACK, 500, 101, "established")
        self.tcp("ACK", CLIENT, ACK, 101, 501, "established")
        return self

    def close(self):
        self.tcp("FIN", CLIENT, FIN | ACK, 101, 501, "established")
        self.tcp("FIN of the server", SERVER, FIN | ACK, 501, 102, "established")
        self.tcp("last ACK", CLIENT, ACK, 102, 502, "established")
        return self

    def datagram(self, side):
        ends, data = (side, 1 - side), b"question"
        octets = struct.pack("!HHHH", *self.ports(side), 8 + len(data), 0) + data
        return packet(self.version, ends, UDP, covered(self.version, ends, UDP, octets, 6))

    def icmp(self, ends, kind, code, rest, data):
        octets = struct.pack("!BBHI", kind, code, 0, rest) + data
        if self.version == 6:
            return packet(6, ends, 58, covered(6, ends, 58, octets, 2))
        return packet(4, ends, 1, octets[:2] + struct.pack("!H", checksum(octets)) + octets[4:])

    def echo(self, side, is_request):
        kinds = {4: (0, 8), 6: (129, 128)}[self.version]
        return self.icmp((side, 1 - side), kinds[is_request], 0, self.client << 16, b"echo")

    def error(self, kinds, about, to=CLIENT):
        """An error of the router behind the server."""
        kind, code = kinds[self.version]
        return self.icmp((2, to), kind, code, 0, about)


UNREACHABLE = {4: (3, 1), 6: (1, 3)}
TIME_EXCEEDED = {4: (11, 0), 6: (3, 0)}


def tcp_exchanges(version):
    one = Conversation("a connection", version).open()
    one.tcp("data", CLIENT, PSH | ACK, 101, 501, "established", data=b"x" * 100)
    one.tcp("data again", CLIENT, PSH | ACK, 101, 501, "established", data=b"x" * 100)
    one.tcp("ACK of the data", SERVER, ACK, 501, 201, "established")
    one.tcp("urgent data", SERVER, PSH | ACK | URG, 501, 201, "established", data=b"y" * 10)
    one.tcp("FIN", CLIENT, FIN | ACK, 201, 511, "established")
    one.tcp("data of the other side", SERVER, PSH | ACK, 511, 202, "established", data=b"y" * 10)
    one.tcp("ACK behind the FIN", CLIENT, ACK, 202, 521, "established")
    one.tcp("FIN of the server", SERVER, FIN | ACK, 521, 202, "established")
    one.tcp("last ACK", CLIENT, ACK, 202, 522, "established")

    one = Conversation("a repeated SYN", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("SYN again", CLIENT, SYN, 100, 0, "new")
    one.tcp("ACK without an answer", CLIENT, ACK, 101, 501, "invalid")
    one.tcp("SYN and ACK", SERVER, SYN | ACK, 500, 101, "established")
    one.tcp("SYN and ACK again", SERVER, SYN | ACK, 500, 101, "established")
    one.tcp("ACK", CLIENT, ACK, 101, 501, "established")

    one = Conversation("a refused connection", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("reset", SERVER, RST | ACK, 0, 101, "established")
    one.tcp("another SYN", CLIENT, SYN, 9000, 0, "new")

    one = Conversation("two SYNs that cross", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("SYN of the server", SERVER, SYN, 500, 0, "established")
    one.tcp("SYN and ACK", CLIENT, SYN | ACK, 100, 501, "established")
    one.tcp("SYN and ACK of the server", SERVER, SYN | ACK, 500, 101, "established")
    one.tcp("data", CLIENT, PSH | ACK, 101, 501, "established", data=b"x")

    one = Conversation("a reset", version).open()
    one.tcp("outside of the window", SERVER, RST, 90_000, 0, "invalid")
    one.tcp("data after it", CLIENT, PSH | ACK, 101, 501, "established", data=b"x")
    one.tcp("exact", SERVER, RST, 501, 0, "established")
    one.tcp("a new SYN", CLIENT, SYN, 9000, 0, "new", AFTER_RESET)

    one = Conversation("sequence numbers", version).open()
    one.tcp("data outside of the window", CLIENT, ACK, 90_000, 501, "invalid", data=b"x")
    one.tcp("ACK of what was not sent", CLIENT, ACK, 101, 90_000, "invalid")
    one.tcp("keep-alive", CLIENT, ACK, 100, 501, "established")
    one.tcp("data", SERVER, ACK, 501, 101, "established", data=b"y")

    one = Conversation("flags", version).open()
    for flags in (0, FIN, SYN | FIN, SYN | RST, FIN | PSH | URG):
        one.tcp(f"flags {flags}", CLIENT, flags, 101, 501, "invalid")

    one = Conversation("no connection", version)
    one.tcp("SYN and ACK", SERVER, SYN | ACK, 500, 101, "invalid")
    one.tcp("reset", CLIENT, RST, 101, 0, "invalid")
    one = Conversation("no connection", version)
    one.tcp("ACK", CLIENT, ACK, 101, 501, "invalid", PICKED_UP)
    one = Conversation("no connection", version)
    one.tcp("FIN", CLIENT, FIN | ACK, 101, 501, "invalid")

    one = Conversation("a SYN within a connection", version).open()
    one.tcp("SYN", CLIENT, SYN, 7000, 0, "invalid", CHALLENGED)
    one.tcp("data", CLIENT, PSH | ACK, 101, 501, "established", data=b"x")

    one = Conversation("another answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("SYN and ACK of something else", SERVER, SYN | ACK, 500, 9000, "invalid")

    one = Conversation("a reset as an answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("reset without ACK", SERVER, RST, 0, 0, "invalid", BARE_RESET)

    one = Conversation("an ACK as an answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("ACK without SYN", SERVER, ACK, 500, 101, "invalid", BARE_ACK)

    one = Conversation("resets before an answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("reset of something else", SERVER, RST | ACK, 0, 9000, "invalid")
    one.tcp("SYN with another number", CLIENT, SYN, 5100, 0, "new")
    one.tcp("reset of the earlier SYN", SERVER, RST | ACK, 0, 101, "invalid", OTHER_RESET)
    one = Conversation("resets before an answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("reset of the client with ACK", CLIENT, RST | ACK, 101, 500, "new", OWN_RESET)
    one = Conversation("resets before an answer", version)
    one.tcp("SYN", CLIENT, SYN, 100, 0, "new")
    one.tcp("reset of the client with another number", CLIENT, RST, 100, 0, "invalid", OWN_RESET_NUMBER)

    one = Conversation("SYNs of the handshake again", version).open()
    one.tcp("SYN of the server without ACK", SERVER, SYN, 500, 0, "established", OTHER_KIND)
    one = Conversation("SYNs of the handshake again", version).open()
    one.tcp("SYN of the client with ACK", CLIENT, SYN | ACK, 100, 501, "established", OTHER_KIND)

    one = Conversation("another number after SYNs that cross", version)
    one.tcp("SYN", CLIENT, SYN, 5100, 0, "new")
    one.tcp("SYN of the server", SERVER, SYN, 500, 0, "established")
    one.tcp("ACK of something else", SERVER, ACK, 501, 101, "invalid", CROSSED_ACK)

    one = Conversation("segments behind a FIN", version).open()
    one.tcp("FIN", CLIENT, FIN | ACK, 101, 501, "established")
    one.tcp("FIN again", CLIENT, FIN | ACK, 101, 501, "established")
    one.tcp("data", CLIENT, PSH | ACK, 102, 501, "invalid", BEHIND_FIN, data=b"x")

    one = Conversation("after a reset", version).open()
    one.tcp("reset", SERVER, RST, 501, 0, "established")
    one.tcp("data on their way", CLIENT, PSH | ACK, 101, 501, "established", data=b"x" * 10)
    one.tcp("ACK of these data", SERVER, ACK, 501, 111, "invalid", SENT_AFTER_RESET)
    one.tcp("SYN and ACK", SERVER, SYN | ACK, 500, 101, "invalid", ANSWER_AFTER_RESET)
    one = Conversation("after a reset", version).open()
    one.tcp("reset", CLIENT, RST, 101, 0, "established")
    one.tcp("SYN of the server", SERVER, SYN, 9000, 0, "new", SERVER_AFTER_RESET)

    one = Conversation("a port that is used again", version).open().close()
    one.tcp("a later SYN", CLIENT, SYN, 90_000, 0, "new")
    one = Conversation("a port that is used again", version).open().close()
    one.tcp("a SYN of long ago", CLIENT, SYN, 2**32 - 50_000, 0, "invalid", OLD_SYN)


def udp_exchanges(version):
    one = Conversation("UDP", version)
    one.add("question", CLIENT, one.datagram(CLIENT), "new")
    one.add("question again", CLIENT, one.datagram(CLIENT), "new")
    one.add("answer", SERVER, one.datagram(SERVER), "established")
    one.add("further question", CLIENT, one.datagram(CLIENT), "established")

    one = Conversation("ESP", version)
    esp = struct.pack("!II", one.client, 1) + bytes(16)
    one.add("packet", CLIENT, packet(version, (0, 1), 50, esp), "new")
    one.add("packet of the server", SERVER, packet(version, (1, 0), 50, esp), "established")

    one = Conversation("a wrong checksum", version)
    right = one.datagram(CLIENT)
    one.add("question", CLIENT, right[:-1] + b"?", "new", NOT_VERIFIED)


def sctp_exchanges():
    def chunk(one, side, kind, tag, rest):
        value = struct.pack("!BBH", kind, 0, 4 + len(rest)) + rest
        header = struct.pack("!HHI", *one.ports(side), tag)
        octets = header + crc32c(header + bytes(4) + value) + value
        return packet(one.version, (side, 1 - side), 132, octets)

    one = Conversation("SCTP")
    one.add("INIT", CLIENT, chunk(one, CLIENT, 1, 0, struct.pack("!IIHHI", 7, 65536, 1, 1, 1)), "new")
    one = Conversation("SCTP")
    data = struct.pack("!IHHI", 1, 0, 0, 0) + b"data"
    one.add("DATA without an association", CLIENT, chunk(one, CLIENT, 0, 7, data), "new", ASSOCIATION)


def icmp_exchanges(version):
    one = Conversation("echo", version)
    one.add("request", CLIENT, one.echo(CLIENT, True), "new")
    one.add("request again", CLIENT, one.echo(CLIENT, True), "new")
    one.add("reply", SERVER, one.echo(SERVER, False), "established")
    one.add("further request", CLIENT, one.echo(CLIENT, True), "established")
    one = Conversation("echo", version)
    one.add("reply without a request", SERVER, one.echo(SERVER, False), "invalid")

    one = Conversation("errors about UDP", version)
    question = one.datagram(CLIENT)
    one.add("error about nothing", SERVER, one.error(UNREACHABLE, question), "invalid")
    one.add("question", CLIENT, question, "new")
    one.add("unreachable", SERVER, one.error(UNREACHABLE, question), "related")
    one.add("time exceeded", SERVER, one.error(TIME_EXCEEDED, question), "related")
    one.add("to another host", CLIENT, one.error(UNREACHABLE, question, SERVER), "invalid")
    one.add("question after errors", CLIENT, one.datagram(CLIENT), "new")

    one = Conversation("errors about an echo", version)
    request = one.echo(CLIENT, True)
    one.add("request", CLIENT, request, "new")
    one.add("unreachable", SERVER, one.error(UNREACHABLE, request), "related")

    one = Conversation("errors about TCP", version).open()
    sent = one.segment(CLIENT, ACK, 101, 501)
    one.tcp("data", CLIENT, PSH | ACK, 101, 501, "established", data=b"x" * 10)
    one.add("unreachable", SERVER, one.error(UNREACHABLE, sent), "related")
    never = one.segment(CLIENT, ACK, 90_000, 501)
    one.add("about octets that were never sent", SERVER, one.error(UNREACHABLE, never), "invalid", NEVER_SENT)


def other_messages():
    one = Conversation("messages")
    timestamp = one.icmp((0, 1), 13, 0, one.client << 16, bytes(12))
    one.add("timestamp request", CLIENT, timestamp, "invalid", TIMESTAMP)
    one = Conversation("messages")
    question = one.datagram(CLIENT)
    one.add("question", CLIENT, question, "new")
    redirect = one.icmp((2, 0), 5, 1, 0, question)
    one.add("redirect", SERVER, redirect, "invalid", REDIRECT)
    one = Conversation("messages", 6)
    solicitation = one.icmp((0, 1), 135, 0, 0, packed(6, 1))
    one.add("neighbour solicitation", CLIENT, solicitation, "untracked")
    one.add("redirect", SERVER, one.icmp((1, 0), 137, 0, 0, bytes(32)), "untracked", REDIRECT_V6)
    one = Conversation("an endpoint to itself")
    fields = struct.pack("!HHHH", 80, 80, 8, 0)
    itself = packet(4, (0, 0), UDP, covered(4, (0, 0), UDP, fields, 6))
    one.add("datagram", CLIENT, itself, "invalid", ITSELF)


def exchanges():
    for version in (4, 6):
        tcp_exchanges(version)
        udp_exchanges(version)
        icmp_exchanges(version)
    sctp_exchanges()
    other_messages()


def send(devices):
    # One CPU: the kernel processes the frames in order.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    outs = []
    for device in devices:
        outs.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        outs[-1].bind((device, 0))
    for line in sys.stdin:
        side, frame = line.split()
        outs[int(side)].send(bytes.fromhex(frame))


if len(sys.argv) == 3:
    send(sys.argv[1:])
else:
    exchanges()
    for one_step in STEPS:
        print(json.dumps(one_step))
