// SPDX-License-Identifier: Apache-2.0
//! Mappings that depend on remote endpoints (RFC 4787, section 4.1; RFC 5382, section 4.1): external endpoints, filtering, hairpinning,
//! errors.

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};

const HOST: &str = "10.0.0.1:5000";
const REMOTE: &str = "192.0.2.1:53";
/// Another port of the remote host, and another host.
const OTHER_PORT: &str = "192.0.2.1:54";
const OTHER: &str = "192.0.2.2:53";
const DEPENDENT: [MappingBehaviour; 2] = [
    MappingBehaviour::AddressDependent,
    MappingBehaviour::AddressAndPortDependent,
];

fn with(mapping: MappingBehaviour) -> NatSettings {
    NatSettings {
        mapping,
        ..settings()
    }
}

fn contents() -> [Content; 2] {
    [Content::Udp(3), segment(SYN)]
}

/// Sends a packet of a remote host to an external endpoint. Returns its inside endpoint.
fn reached(nat: &mut Nat, remote: &str, to: SocketAddrV4) -> Result<SocketAddrV4, NatDrop> {
    let octets = packet(socket(remote), to, Content::Udp(3));
    let received = inbound(nat, &octets, 0)?;
    assert_sound(&received);
    Ok(ends(&received).1)
}

#[test]
fn an_external_endpoint_belongs_to_the_remote_address_or_endpoint() {
    for mapping in DEPENDENT {
        let is_one_for_all_ports = mapping == MappingBehaviour::AddressDependent;
        for content in contents() {
            let mut nat = Nat::new(&with(mapping)).unwrap();
            let mut sent = |to| external(&mut nat, HOST, to, content.clone());
            let first = sent(REMOTE);
            assert_eq!(sent(REMOTE), first);
            assert_eq!(sent(OTHER_PORT) == first, is_one_for_all_ports);
            let other = sent(OTHER);
            assert_ne!(other, first);
            // RFC 4787, REQ-2: one external address.
            assert_eq!(other.ip(), first.ip());
            let listed = nat.list(0, usize::MAX).0;
            let port = (!is_one_for_all_ports).then_some(53);
            let found = listed.iter().find(|one| one.external == first).unwrap();
            let address = Some(Ipv4Addr::new(192, 0, 2, 1));
            assert_eq!((found.remote_address, found.remote_port), (address, port));
            let shown = |remote: &str| {
                let protocol = found.protocol;
                nat.external_of(protocol, socket(HOST), socket(remote))
            };
            assert_eq!((shown(REMOTE), shown(OTHER)), (Some(first), Some(other)));
            assert_eq!(shown("192.0.2.3:53"), None);
        }
        // An echo has no remote port: the address counts.
        let mut nat = Nat::new(&with(mapping)).unwrap();
        let mut echo = |to| external(&mut nat, "10.0.0.1:9", to, Content::EchoRequest);
        let first = echo("192.0.2.1:9");
        assert_eq!(echo("192.0.2.1:9"), first);
        assert_ne!(echo("192.0.2.2:9"), first);
        let reply = |from: &str| {
            let from = SocketAddrV4::new(from.parse().unwrap(), first.port());
            packet(from, first, Content::EchoReply)
        };
        let received = inbound(&mut nat, &reply("192.0.2.1"), 0).unwrap();
        assert_eq!(ends(&received).1, socket("10.0.0.1:9"));
        let filtered = inbound(&mut nat, &reply("192.0.2.2"), 0);
        assert_eq!(filtered, Err(NatDrop::Filtered));
    }
}

#[test]
fn only_the_remote_host_or_endpoint_of_a_mapping_reaches_it() {
    for mapping in DEPENDENT {
        let mut nat = Nat::new(&with(mapping)).unwrap();
        let first = external(&mut nat, HOST, REMOTE, Content::Udp(3));
        assert_eq!(reached(&mut nat, REMOTE, first), Ok(socket(HOST)));
        assert_eq!(reached(&mut nat, OTHER, first), Err(NatDrop::Filtered));
        let other_port = reached(&mut nat, OTHER_PORT, first);
        let expected = match mapping {
            MappingBehaviour::AddressDependent => Ok(socket(HOST)),
            _ => Err(NatDrop::Filtered),
        };
        assert_eq!(other_port, expected);
        let unknown = SocketAddrV4::new(*first.ip(), first.port() ^ 1);
        assert_eq!(reached(&mut nat, REMOTE, unknown), Err(NatDrop::NoMapping));
        let filtered = nat.counters().dropped[NatDrop::Filtered as usize];
        assert_eq!(filtered, 1 + u64::from(expected.is_err()));
        // The host sends to the other one, which reaches it at the endpoint of its own.
        let second = external(&mut nat, HOST, OTHER, Content::Udp(3));
        assert_eq!(reached(&mut nat, OTHER, second), Ok(socket(HOST)));
        assert_eq!(reached(&mut nat, REMOTE, second), Err(NatDrop::Filtered));
        // A copy for the classification of a packet, whose source may not be translated yet.
        let mut copy = packet(socket(OTHER), first, Content::Udp(3));
        let length = copy.len();
        assert_eq!(nat.show_inside(&mut copy, length), NatOutcome::Translated);
    }
}

#[test]
fn published_ports_are_for_all_remote_hosts_and_inside_hosts_use_them_too() {
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external: socket("198.51.100.1:443"),
        internal: socket("10.0.0.5:8443"),
    };
    let Forward {
        external: published,
        internal: server,
        ..
    } = forward;
    for mapping in DEPENDENT {
        let mut settings = with(mapping);
        settings.pool.addresses.truncate(1);
        let mut nat = Nat::new(&settings).unwrap();
        // A mapping from before, and of another port of the host.
        let former = external(&mut nat, "10.0.0.5:8443", REMOTE, Content::Udp(3));
        let kept = external(&mut nat, "10.0.0.5:1", REMOTE, Content::Udp(3));
        assert_eq!(nat.set_forwards(&[forward]), 0);
        for remote in [REMOTE, OTHER] {
            assert_eq!(reached(&mut nat, remote, published), Ok(server));
            let answer = external(&mut nat, "10.0.0.5:8443", remote, Content::Udp(3));
            assert_eq!(answer, published);
        }
        assert_eq!(reached(&mut nat, REMOTE, kept), Ok(socket("10.0.0.5:1")));
        // RFC 4787, REQ-9: an inside host, and the answer to its external endpoint.
        let mut request = packet(socket(HOST), published, Content::Udp(3));
        let length = request.len();
        let outcome = nat.hairpin(&mut request, length, 0);
        assert_eq!(outcome, NatOutcome::Hairpinned);
        assert_sound(&request);
        let (client, destination) = ends(&request);
        assert_eq!((client.ip(), destination), (published.ip(), server));
        let mut answer = packet(server, client, Content::Udp(3));
        assert_eq!(nat.hairpin(&mut answer, length, 0), NatOutcome::Hairpinned);
        assert_eq!(ends(&answer), (published, socket(HOST)));
        // Another inside host has the external address of the service, and another port.
        let mut stranger = packet(socket("10.0.0.7:1"), client, Content::Udp(3));
        let expected = match mapping {
            MappingBehaviour::AddressDependent => NatOutcome::Hairpinned,
            _ => NatOutcome::Dropped(NatDrop::Filtered),
        };
        assert_eq!(nat.hairpin(&mut stranger, length, 0), expected);
        // No packet of the host refreshes the mapping from before, which the control thread removes.
        for (now, is_there) in [(300, true), (301, false)] {
            nat.expire(now, usize::MAX);
            let listed = nat.list(0, usize::MAX).0;
            let mut externals = listed.iter().map(|one| one.external);
            assert_eq!(externals.any(|one| one == former), is_there);
        }
    }
}

/// RFC 5508, REQ-4, REQ-5: errors from any router about packets of the mapping.
#[test]
fn errors_are_about_packets_to_and_from_the_remote_endpoint_of_the_mapping() {
    for mapping in DEPENDENT {
        let mut nat = Nat::new(&with(mapping)).unwrap();
        let original = packet(socket(HOST), socket(REMOTE), Content::Udp(3));
        let translated = outbound(&mut nat, &original, 0).unwrap();
        let source = ends(&translated).0;
        let error = error_about(&translated, "203.0.113.7", source);
        let received = inbound(&mut nat, &error, 0).unwrap();
        assert_sound(&received);
        assert_eq!(received[28..], original[..28]);
        // About a packet that the host has not sent from this endpoint.
        let forged = packet(source, socket(OTHER), Content::Udp(3));
        let error = error_about(&forged, "203.0.113.7", source);
        assert_eq!(inbound(&mut nat, &error, 0), Err(NatDrop::Filtered));
        // Errors of the host about packets of both remote hosts.
        let arrived = packet(socket(REMOTE), source, Content::Udp(3));
        let received = inbound(&mut nat, &arrived, 0).unwrap();
        let error = error_about(&received, "10.0.0.1", socket(REMOTE));
        let sent = outbound(&mut nat, &error, 0).unwrap();
        assert_sound(&sent);
        assert_eq!(sent[28..], arrived[..28]);
        let mut own = error_about(&received, "198.51.100.1", socket(REMOTE));
        let length = own.len();
        nat.translate_own_error(&mut own, length);
        assert_eq!(own[28..], arrived[..28]);
        let unknown = packet(socket(OTHER), socket(HOST), Content::Udp(3));
        let error = error_about(&unknown, "10.0.0.1", socket(OTHER));
        assert_eq!(outbound(&mut nat, &error, 0), Err(NatDrop::NoMapping));
    }
}

#[test]
fn records_of_another_behaviour_are_refused() {
    let all = [
        (MappingBehaviour::EndpointIndependent, "0.0.0.0:0"),
        (MappingBehaviour::AddressDependent, "192.0.2.1:0"),
        (MappingBehaviour::AddressAndPortDependent, REMOTE),
    ];
    for (mapping, _) in all {
        let mut nat = Nat::new(&with(mapping)).unwrap();
        for (other, remote) in all {
            let saved = SavedMapping {
                protocol: NatProtocol::Udp,
                is_answered: false,
                internal: socket(HOST),
                external: socket("198.51.100.1:1040"),
                remote: socket(remote),
            };
            // No port at all could be the port 0.
            let is_possible = other == mapping
                || (mapping, other)
                    == (
                        MappingBehaviour::AddressAndPortDependent,
                        MappingBehaviour::AddressDependent,
                    );
            let applied = nat.apply(&MappingChange::Present(saved), 0);
            assert_eq!(applied.is_ok(), is_possible, "{mapping:?}, {other:?}");
            if !is_possible {
                assert_eq!(applied, Err(ApplyError::Invalid));
                continue;
            }
            let ended = nat.apply(&MappingChange::Ended(saved), 0);
            assert_eq!((ended, nat.len()), (Ok(Applied::Removed), 0));
        }
    }
}

#[test]
fn no_mapping_depends_on_the_address_of_no_host() {
    let octets = packet(socket(HOST), socket("0.0.0.0:53"), Content::Udp(3));
    for mapping in DEPENDENT {
        let mut nat = Nat::new(&with(mapping)).unwrap();
        assert_eq!(outbound(&mut nat, &octets, 0), Err(NatDrop::Malformed));
        assert!(nat.is_empty());
    }
}
