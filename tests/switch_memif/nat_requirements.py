# SPDX-License-Identifier: Apache-2.0
"""Requirements of RFC 4787 (UDP), RFC 5382 (TCP), RFC 5508 (ICMP) and RFC 6888 (CGN) on NAT, as frames: those sent, and every frame that has to leave, octet
by octet.

scapy makes all frames, independently of the code. `nat_requirements.py DIRECTORY` prints a document like that of requirements.py. The NAT has
two external ports (nat_requirements.rs), and a mapping has that of the parity of the inside port: so all external ports are known. A second
mapping of an inside port has the other one.

`nat_requirements.py DIRECTORY BEHAVIOUR` prints the cases of another mapping behaviour than the default. Such a NAT does not meet REQ-1 of
RFC 4787. `nat_requirements.py DIRECTORY deterministic` prints those of a NAT whose blocks of two ports are computed from two inside addresses,
and `nat_requirements.py DIRECTORY ranges` those of a NAT with two external ports below 1024 and two from there on.
"""

import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from requirements import HOST_A, HOST_B, ROUTER_A, ROUTER_B, case, cases, error4, step, tests_there  # noqa: E402
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402

# Inside hosts, the external address, and remote hosts.
HOST, SERVER, OWN, REMOTE, OTHER = "10.0.0.5", "10.0.0.6", "198.51.100.1", "198.51.100.9", "198.51.100.10"
# A destination without translation.
EXCLUDED = "198.51.100.11"
# Inside address of the router, and the MTU of its outside interface.
GATEWAY, MTU = "10.0.0.1", 1400
# External ports of even and of odd inside ports.
EVEN, ODD = 4000, 4001
MACS = {"a": (HOST_A, ROUTER_A), "b": (HOST_B, ROUTER_B)}


def udp(source, destination, ttl=64, size=20):
    (from_, sport), (to, dport) = source, destination
    return IP(src=from_, dst=to, ttl=ttl) / UDP(sport=sport, dport=dport) / Raw(b"\x5a" * size)


def tcp(flags):
    """Segments with these control bits."""

    def segment(source, destination, ttl=64):
        (from_, sport), (to, dport) = source, destination
        return IP(src=from_, dst=to, ttl=ttl) / TCP(sport=sport, dport=dport, flags=flags, seq=7, ack=8)

    return segment


def echo(kind):
    """Echo requests (8) or replies (0), whose port is the identifier of the inside or external endpoint."""

    def message(source, destination, ttl=64):
        (from_, from_port), (to, to_port) = source, destination
        identifier = from_port if kind == 8 else to_port
        return IP(src=from_, dst=to, ttl=ttl) / ICMP(type=kind, id=identifier, seq=1) / Raw(b"\x11" * 32)

    return message


def error(source, destination, about, kind=11, code=0, ttl=64):
    return IP(src=source, dst=destination, ttl=ttl) / ICMP(type=kind, code=code) / Raw(bytes(about))


def received(side, packet):
    """The frame of a packet that a host sends to the router."""
    host, router = MACS[side]
    return Ether(src=host, dst=router) / packet


def left(side, packet):
    """The frame of a packet that the router sends to a host."""
    host, router = MACS[side]
    return Ether(src=router, dst=host) / packet


def passes(sent_at, sent, left_at, leaves):
    return step(sent_at, [received(sent_at, sent)], **{left_at: [left(left_at, leaves)]})


def outward(make, inside, external, remote):
    """A packet to the outside, with its external source."""
    return passes("a", make(inside, remote), "b", make(external, remote, ttl=63))


def inward(make, remote, external, inside):
    """A packet to an external endpoint, with its inside destination."""
    return passes("b", make(remote, external), "a", make(remote, inside, ttl=63))


def hairpin(make, inside, external, target, server):
    """A packet to the inside by an external endpoint, with the external source."""
    return passes("a", make(inside, target), "a", make(external, server, ttl=63))


def reported(packet, kind, code, word=0):
    """A packet of the inside, and the error of the router to its sender."""
    sent = Ether(bytes(received("a", packet)))
    return {"at": "a", "send": [sent], "a": [error4(sent, kind, code, word, source=GATEWAY)]}


def without_space(packet):
    """A packet for which no external port is left, and the error to its sender."""
    return step(**reported(packet, 3, 1), drops={"nat-host-limit": 1})


KINDS = [("UDP", udp, "4787"), ("TCP", tcp("S"), "5382")]


def mappings():
    for name, make, rfc in KINDS:
        steps = [outward(make, (HOST, 5000), (OWN, EVEN), remote) for remote in ((REMOTE, 53), (REMOTE, 54), (OTHER, 80))]
        case(f"{name}: one external endpoint for all remote endpoints", [f"{rfc} REQ-1"], *steps)
        parity = ["4787 REQ-4"] if make is udp else []
        case(f"{name}: another inside port has another external port", parity, outward(make, (HOST, 5001), (OWN, ODD), (REMOTE, 53)))
        filtering = ["4787 REQ-8"] if make is udp else ["5382 REQ-3"]
        steps = [inward(make, remote, (OWN, EVEN), (HOST, 5000)) for remote in ((REMOTE, 53), (REMOTE, 9), (OTHER, 1000))]
        case(f"{name}: every remote endpoint reaches the mapping", [*filtering, "6888 REQ-7"], *steps)
        overloading = ["4787 REQ-3"] if make is udp else ["5382 REQ-7"]
        third = without_space(make((HOST, 5002), (REMOTE, 53)))
        steps = [outward(make, (HOST, port), (OWN, external), (REMOTE, 53)) for port, external in ((5000, EVEN), (5001, ODD))]
        covers = [*overloading, "5508 REQ-8", "6888 REQ-4", "6888 REQ-11"]
        case(f"{name}: no two mappings share a port, and the sender of a third one gets an error", covers, third, *steps)
        # With a host that has no port left.
        steps = [outward(make, (HOST, 5002), (HOST, 5002), (EXCLUDED, 53)), inward(make, (EXCLUDED, 53), (HOST, 5002), (HOST, 5002))]
        case(f"{name}: packets to an excluded destination keep their addresses", ["6888 REQ-6"], *steps)
    steps = [outward(echo(8), (HOST, 8), (OWN, EVEN), (to, 8)) for to in (REMOTE, OTHER)]
    steps += [inward(echo(0), (to, 8), (OWN, EVEN), (HOST, 8)) for to in (REMOTE, OTHER)]
    case("ICMP: one external identifier, and replies return", ["5508 REQ-1"], *steps)


def opening():
    inside, external, remote = (HOST, 5000), (OWN, EVEN), (REMOTE, 80)
    steps = [outward(tcp("S"), inside, external, remote), inward(tcp("S"), remote, external, inside)]
    steps += [outward(tcp("SA"), inside, external, remote), inward(tcp("SA"), remote, external, inside)]
    case("TCP: both sides open at once", ["5382 REQ-2"], *steps)
    # Behind it, a packet that passes: an answer would have come first.
    unsolicited = step("b", [received("b", tcp("S")((REMOTE, 80), (OWN, 4003)))])
    case("TCP: no answer to an unsolicited SYN", ["5382 REQ-4"], unsolicited, inward(tcp("A"), remote, external, inside))


def hairpinning():
    for (name, make, _), published, port, covers in ((KINDS[0], 53, 5300, ["4787 REQ-9", "4787 REQ-9a"]), (KINDS[1], 443, 8443, ["5382 REQ-8"])):
        there = hairpin(make, (HOST, 5000), (OWN, EVEN), (OWN, published), (SERVER, port))
        back = hairpin(make, (SERVER, port), (OWN, published), (OWN, EVEN), (HOST, 5000))
        case(f"{name}: inside hosts reach one another by external endpoints", covers, there, back)


def errors():
    for name, make, covers in (("UDP", udp, ["4787 REQ-12", "5508 REQ-4"]), ("TCP", tcp("S"), ["5382 REQ-9", "5382 REQ-10"])):
        arrived = make((OWN, EVEN), (REMOTE, 53), ttl=63)
        mine = make((HOST, 5000), (REMOTE, 53), ttl=63)
        about = passes("b", error(OTHER, OWN, arrived), "a", error(OTHER, HOST, mine, ttl=63))
        still = inward(make, (REMOTE, 53), (OWN, EVEN), (HOST, 5000))
        case(f"{name}: an error from outside is about the packet of the host, and ends no mapping", [*covers, "5508 REQ-6"], about, still)
        answer = make((REMOTE, 53), (HOST, 5000), ttl=63)
        theirs = make((REMOTE, 53), (OWN, EVEN), ttl=63)
        about = passes("a", error(HOST, REMOTE, answer, 3, 3), "b", error(OWN, REMOTE, theirs, 3, 3, ttl=63))
        case(f"{name}: an error of the host is about the packet to the external endpoint", ["5508 REQ-5"], about, still)


    there = hairpin(udp, (HOST, 5000), (OWN, EVEN), (OWN, 53), (SERVER, 5300))
    arrived = udp((OWN, EVEN), (SERVER, 5300), ttl=63)
    mine = udp((HOST, 5000), (OWN, 53), ttl=63)
    about = passes("a", error(SERVER, OWN, arrived, 3, 3), "a", error(OWN, HOST, mine, 3, 3, ttl=63))
    case("an error about a packet between inside hosts is about the packet of the sender", ["5508 REQ-7"], there, about)
    timestamp = IP(src=HOST, dst=REMOTE) / ICMP(type=13, id=5, seq=1)
    case("ICMP: messages other than echoes and errors are dropped", ["5508 REQ-11"], step("a", [received("a", timestamp)], drops={"nat-icmp-type": 1}))


def errors_of_the_router():
    expired = udp((HOST, 5000), (REMOTE, 53), ttl=1)
    case("the router reports an expired packet as the host has sent it", ["5508 REQ-10"], step(**reported(expired, 11, 0)))
    large = udp((HOST, 5000), (REMOTE, 53), size=MTU)
    large.flags = "DF"
    case("the router reports a packet that is too big", ["4787 REQ-13"], step(**reported(large, 3, 4, MTU)))


def payloads():
    def data(text, port, transport):
        return lambda source, to, ttl=64: IP(src=source[0], dst=to[0], ttl=ttl) / transport(sport=source[1], dport=port) / Raw(text)

    call = data(f"INVITE sip:guest@{HOST}:5000".encode(), 5060, UDP)
    case("UDP: addresses in the data stay", ["4787 REQ-10"], outward(call, (HOST, 5000), (OWN, EVEN), (REMOTE, 5060)))
    command = data(b"PORT 10,0,0,5,19,136\r\n", 21, TCP)
    case("TCP: addresses in the data stay", ["5382 REQ-6"], outward(command, (HOST, 5000), (OWN, EVEN), (REMOTE, 21)))


def fragments():
    def parts(packet, number):
        packet.id = number
        return [IP(bytes(one)) for one in fragment(packet, fragsize=24)]

    for number, name, order in ((77, "in order", list), (78, "in reverse order", lambda parts: parts[::-1])):
        sent = parts(udp((REMOTE, 53), (OWN, EVEN), size=60), number)
        leave = parts(udp((REMOTE, 53), (HOST, 5000), ttl=63, size=60), number)
        assert len(sent) > 2
        # Behind the first one, the others leave in the order of their arrival.
        expected = [leave[0], *order(leave[1:])]
        played = step("b", [received("b", one) for one in order(sent)], a=[left("a", one) for one in expected])
        case(f"fragments of a datagram have one translation, {name}", ["4787 REQ-14"], played)


def filtered(packet):
    """A packet from the outside to the external endpoint of a mapping that does not accept its source."""
    return step("b", [received("b", packet)], drops={"nat-filtered": 1})


def address_dependent():
    """RFC 4787, section 4.1: one external endpoint for all ports of a remote address. Section 5: this address reaches it, by all ports."""
    first, second = (OWN, EVEN), (OWN, ODD)
    for name, make, _ in KINDS:
        ways = [((REMOTE, 53), first), ((REMOTE, 54), first), ((OTHER, 80), second), ((REMOTE, 53), first)]
        steps = [outward(make, (HOST, 5000), external, remote) for remote, external in ways]
        case(f"{name}: an external endpoint for each remote address", [], *steps)
        ways = [((REMOTE, 53), first), ((REMOTE, 9), first), ((OTHER, 1000), second)]
        steps = [inward(make, remote, external, (HOST, 5000)) for remote, external in ways]
        steps += [filtered(make(remote, external)) for remote, external in (((OTHER, 80), first), ((REMOTE, 53), second))]
        # The second sentence of REQ-8: address-dependent filtering if a more stringent behaviour matters most.
        covers = ["4787 REQ-8"] if make is udp else []
        case(f"{name}: all ports of the remote address reach the mapping, and other addresses do not", covers, *steps)


def address_and_port_dependent():
    """RFC 4787, section 4.1: an external endpoint for each remote endpoint. Section 5: only this one reaches it."""
    first, second = (OWN, EVEN), (OWN, ODD)
    for name, make, _ in KINDS:
        ways = [((REMOTE, 53), first), ((REMOTE, 54), second), ((REMOTE, 53), first)]
        steps = [outward(make, (HOST, 5000), external, remote) for remote, external in ways]
        # Both ports are in use.
        third = without_space(make((HOST, 5000), (OTHER, 53)))
        case(f"{name}: an external endpoint for each remote endpoint", [], *steps, third)
        ways = [((REMOTE, 53), first), ((REMOTE, 54), second)]
        steps = [inward(make, remote, external, (HOST, 5000)) for remote, external in ways]
        ways = [((REMOTE, 54), first), ((OTHER, 53), first), ((REMOTE, 53), second)]
        steps += [filtered(make(remote, external)) for remote, external in ways]
        case(f"{name}: only the remote endpoint reaches the mapping", [], *steps)


def dependent():
    """What both behaviours have in common."""
    ways = [(REMOTE, EVEN), (OTHER, ODD)]
    steps = [outward(echo(8), (HOST, 8), (OWN, port), (to, 8)) for to, port in ways]
    steps += [inward(echo(0), (to, 8), (OWN, port), (HOST, 8)) for to, port in ways]
    steps.append(filtered(echo(0)((OTHER, 8), (OWN, EVEN))))
    case("ICMP: an external identifier for each remote address", [], *steps)
    for name, make, _ in KINDS:
        arrived = make((OWN, EVEN), (REMOTE, 53), ttl=63)
        mine = make((HOST, 5000), (REMOTE, 53), ttl=63)
        about = passes("b", error(OTHER, OWN, arrived), "a", error(OTHER, HOST, mine, ttl=63))
        forged = filtered(error(OTHER, OWN, make((OWN, EVEN), (OTHER, 53), ttl=63)))
        case(f"{name}: an error of any router is about a packet to the remote host of the mapping", [], about, forged)
    for name, make, published, port in (("UDP", udp, 53, 5300), ("TCP", tcp("S"), 443, 8443)):
        steps = []
        for remote in ((REMOTE, 1000), (OTHER, 1001)):
            steps.append(inward(make, remote, (OWN, published), (SERVER, port)))
            steps.append(outward(make, (SERVER, port), (OWN, published), remote))
        case(f"{name}: every remote endpoint reaches a published port", [], *steps)


def deterministic():
    """RFC 7422: the order of the inside addresses determines the ports, whichever host sends first."""
    ways = [((SERVER, 5000), 4002), ((HOST, 5000), 4000), ((SERVER, 5001), 4003), ((HOST, 5001), 4001)]
    for name, make, _ in KINDS:
        steps = [outward(make, inside, (OWN, port), (REMOTE, 53)) for inside, port in ways]
        case(f"{name}: each host has the ports that are computed from its address", [], *steps)
        steps = [inward(make, (OTHER, 9), (OWN, port), inside) for inside, port in ways]
        case(f"{name}: computed ports lead to their host", [], *steps)
        there = hairpin(make, (HOST, 5000), (OWN, 4000), (OWN, 4002), (SERVER, 5000))
        case(f"{name}: a host has no port of another one", [], without_space(make((HOST, 5002), (REMOTE, 53))), there)


def ranges():
    """RFC 4787, REQ-3a: an external port is below 1024 if the inside port is."""
    ways = [(500, 1022), (5000, 1024), (501, 1023), (5001, 1025)]
    for name, make, _ in KINDS:
        covers = ["4787 REQ-3a"] if make is udp else []
        steps = [outward(make, (HOST, port), (OWN, external), (REMOTE, 53)) for port, external in ways]
        case(f"{name}: an external port is of the range of the inside port", covers, *steps)
        steps = [inward(make, (OTHER, 9), (OWN, external), (HOST, port)) for port, external in ways]
        case(f"{name}: ports of both ranges lead to their host", covers, *steps)
        steps = [without_space(make((HOST, port), (REMOTE, 53))) for port in (502, 5002)]
        case(f"{name}: no two mappings of a range share a port", [], *steps)


BEHAVIOURS = {"address-dependent": address_dependent, "address-and-port-dependent": address_and_port_dependent}
# Other external ports than those of the default.
POOLS = {"deterministic": deterministic, "ranges": ranges}


# Requirements that single frames cannot show, and the tests that cover them.
ELSEWHERE = {
    "4787 REQ-2": "a_host_has_one_external_address",
    "4787 REQ-3a": "an_external_port_is_of_the_range_of_the_inside_port",
    "4787 REQ-5": "outbound_datagrams_extend_a_mapping_and_inbound_ones_do_not",
    "4787 REQ-6": "outbound_datagrams_extend_a_mapping_and_inbound_ones_do_not",
    "4787 REQ-11": "answers_return_to_the_sender_and_no_external_endpoint_is_shared",
    "4787 REQ-14a": "other_sources_have_space_beside_one_that_floods",
    "5382 REQ-5": "an_answered_connection_stays_for_two_hours_and_a_closed_one_for_minutes",
    "5508 REQ-2": "mappings_of_echoes_end_after_a_minute",
    "5508 REQ-3": "damaged_and_unrelated_errors_are_dropped",
    "6888 REQ-1": "packets_that_cannot_be_translated_are_dropped",
    "6888 REQ-2": "a_host_has_one_external_address",
    "6888 REQ-3": "a_full_pool_grows_and_established_mappings_stay",
    "6888 REQ-5": "exhausted_ports_are_reported_and_mappings_stay",
    "6888 REQ-8": "blocks_change_hosts_after_a_hold_down",
    "6888 REQ-10": "matching_mappings_end_and_others_stay",
    "6888 REQ-12": "events_become_lines_and_rings_of_removed_instances_end",
    "6888 REQ-13": "exhausted_ports_are_reported_and_mappings_stay",
    "6888 REQ-14": "events_become_lines_and_rings_of_removed_instances_end",
    "6888 REQ-15": "external_ports_are_drawn",
}
# Requirements that the code names as not met, or as those of other devices.
NOT_MET = {"4787 REQ-7", "6888 REQ-9"}

NUMBER = r"REQ-\d+[a-z]?"
NAMED = re.compile(rf"RFC (\d+), ({NUMBER}(?:(?:, | and ){NUMBER})*)")


def named(crates):
    """Requirements that the code names, without tests."""
    folder = pathlib.Path(crates, "tables/src/nat")
    files = [folder.with_suffix(".rs"), *folder.rglob("*.rs")]
    found = set()
    for file in files:
        if "tests" not in file.with_suffix("").parts:
            text = re.sub(r"\n\s*//[/!]? ?", " ", file.read_text())
            for match in NAMED.finditer(text):
                found.update(f"{match[1]} {number}" for number in re.split(r", | and ", match[2]))
    return found


def documented(crates):
    """Requirements in the table of the guide."""
    guide = pathlib.Path(crates, "../docs/nat.md").read_text()
    section = guide.partition("\n## Requirements of the RFCs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    matches = [match for row in rows for match in NAMED.finditer(row)]
    return {f"{match[1]} {number}" for match in matches for number in re.split(r", | and ", match[2])}


def main():
    if len(sys.argv) > 2:
        if sys.argv[2] in POOLS:
            POOLS[sys.argv[2]]()
        else:
            BEHAVIOURS[sys.argv[2]]()
            dependent()
        # The cases of the default cover the requirements.
        json.dump({"cases": cases, "background": [], "named": len(named(sys.argv[1])), "uncovered": []}, sys.stdout)
        return
    for group in (mappings, opening, hairpinning, errors, errors_of_the_router, payloads, fragments):
        group()
    covered = {requirement for one in cases for requirement in one["covers"]}
    there = tests_there(sys.argv[1], ELSEWHERE)
    covered |= {requirement for requirement, test in ELSEWHERE.items() if test in there}
    all_named = named(sys.argv[1])
    wanted = all_named - NOT_MET
    uncovered = sorted(wanted - covered)
    uncovered += [f"{one} in docs/nat.md" for one in sorted(all_named ^ documented(sys.argv[1]))]
    json.dump({"cases": cases, "background": [], "named": len(wanted), "uncovered": uncovered}, sys.stdout)


if __name__ == "__main__":
    main()
