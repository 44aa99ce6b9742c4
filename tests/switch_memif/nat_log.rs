// SPDX-License-Identifier: Apache-2.0
//! Events of mappings in the log of NAT and at an IPFIX collector.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use quietwire_switch::report::NatReport;
use serde_json::Value;

use crate::bench::{Bench, change, until};
use crate::nat::{
    HOST, OWN, REMOTE, SERVER, TO_A, TO_B, echo, pass, source_port, start_with_log, tcp, udp,
};

/// Three blocks of eight ports, one for a host.
const KEYS: &str = "
ports = \"2000-2023\"
block-size = 8
blocks-per-host = 1
max-mappings = 1000
timeouts = { icmp = 1 }
";
/// Mappings of the test: eight of a host at its limit, and one of another host.
const MAPPINGS: usize = 9;

/// Inside and external endpoint of a mapping.
type Ends = (String, String);

/// Returns the complete lines of the log.
fn lines(bench: &Bench) -> Vec<Value> {
    let text = fs::read_to_string(bench.path("nat.jsonl")).unwrap();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn text(line: &Value, key: &str) -> String {
    line[key].as_str().unwrap().to_owned()
}

/// Checks the order of all events: a mapping begins behind the event of its block, and ends in front of that of its return.
fn check_order(lines: &[Value], opened: &BTreeSet<Ends>) {
    let (mut created, mut open) = (BTreeSet::new(), BTreeSet::new());
    let (mut hosts, mut limits) = (BTreeSet::new(), 0);
    for line in lines {
        let host_of = |ends: &Ends| ends.0.split(':').next().unwrap_or_default().to_owned();
        let ends = || (text(line, "inside"), text(line, "outside"));
        match line["event"].as_str().unwrap() {
            "assigned" => assert!(hosts.insert(text(line, "host")), "{line}"),
            "returned" => {
                let host = text(line, "host");
                assert!(!open.iter().any(|ends| host_of(ends) == host), "{line}");
                assert!(hosts.remove(&host), "{line}");
            }
            "created" => {
                let protocol = match host_of(&ends()) == HOST {
                    true => "udp",
                    false => "icmp",
                };
                assert_eq!(line["protocol"], protocol);
                assert_eq!(line["vrf"], "main");
                assert!(hosts.contains(&host_of(&ends())), "{line}");
                assert!(open.insert(ends()), "{line}");
                created.insert(ends());
            }
            "deleted" => assert!(open.remove(&ends()), "{line}"),
            "limit" => {
                let limit = (text(line, "limit"), text(line, "host"));
                assert_eq!(limit, ("host-blocks".to_owned(), HOST.to_owned()));
                assert_eq!(line["maximum"], 8);
                limits += 1;
            }
            event => panic!("{event}"),
        }
    }
    assert_eq!((&created, open.len(), limits), (opened, 0, 1));
}

/// Returns the records of an IPFIX message, as octets by information element, by the templates in it (RFC 7011, section 3).
fn decoded(message: &[u8]) -> Vec<BTreeMap<u16, Vec<u8>>> {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    assert_eq!((word(0), usize::from(word(2))), (10, message.len()));
    let mut templates: BTreeMap<u16, Vec<(u16, u16)>> = BTreeMap::new();
    let (mut records, mut at) = (Vec::new(), 16);
    while at < message.len() {
        let (set, end) = (word(at), at + usize::from(word(at + 2)));
        at += 4;
        while at < end {
            if set == 2 {
                let (id, count) = (word(at), usize::from(word(at + 2)));
                let field = |number: usize| {
                    let at = at + 4 + 4 * number;
                    (word(at), word(at + 2))
                };
                templates.insert(id, (0..count).map(field).collect());
                at += 4 + 4 * count;
                continue;
            }
            let mut record = BTreeMap::new();
            for (element, length) in &templates[&set] {
                let mut length = usize::from(*length);
                if length == 0xffff {
                    length = usize::from(message[at]);
                    at += 1;
                }
                record.insert(*element, message[at..at + length].to_vec());
                at += length;
            }
            records.push(record);
        }
    }
    records
}

/// Returns the endpoint in two fields of a record.
fn endpoint(record: &BTreeMap<u16, Vec<u8>>, address: u16, port: u16) -> String {
    let address: [u8; 4] = record[&address][..].try_into().unwrap();
    let port: [u8; 2] = record[&port][..].try_into().unwrap();
    format!("{}:{}", Ipv4Addr::from(address), u16::from_be_bytes(port))
}

/// Receives events until all mappings have ended. Returns those that have begun.
fn collected(collector: &UdpSocket) -> BTreeSet<Ends> {
    let (mut created, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    let (mut octets, mut limits) = ([0; 1500], 0);
    while deleted.len() < MAPPINGS {
        let length = collector.recv(&mut octets).unwrap();
        for record in decoded(&octets[..length]) {
            // natEvent of RFC 8158: NAT44 BIB create and delete, port blocks, quota exceeded.
            match record[&230][..] {
                [8 | 9] => {
                    let ends = (endpoint(&record, 8, 7), endpoint(&record, 225, 227));
                    assert!([1, 17].contains(&record[&4][0]), "{record:?}");
                    assert_eq!(record[&236], b"main");
                    let events = match record[&230][..] {
                        [8] => &mut created,
                        _ => {
                            assert!(created.contains(&ends), "{ends:?}");
                            &mut deleted
                        }
                    };
                    assert!(events.insert(ends));
                }
                [16 | 17] => {}
                [13] => {
                    assert_eq!(
                        (&record[&466][..], &record[&473][..]),
                        (&[0, 0, 0, 3][..], &[0, 0, 0, 8][..])
                    );
                    limits += 1;
                }
                ref event => panic!("{event:?}"),
            }
        }
    }
    assert_eq!((&created, limits), (&deleted, 1));
    created
}

#[test]
fn each_mapping_has_its_events_in_the_log_and_at_the_collector() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let of_log = format!(
        "nat-log-collector = \"{}\"\nnat-log-events = [\"blocks\", \"mappings\", \"limits\"]",
        collector.local_addr().unwrap()
    );
    let (bench, mut a, mut b) = start_with_log(&[], &of_log, KEYS);
    let mut opened = BTreeSet::new();
    for port in 4000..4008 {
        let sent = pass(&mut a, &mut b, udp(TO_A, (HOST, port), (REMOTE, 53), 64));
        let outside = format!("{OWN}:{}", source_port(&sent));
        opened.insert((format!("{HOST}:{port}"), outside));
    }
    let sent = pass(&mut a, &mut b, echo(TO_A, SERVER, REMOTE, 64, 77, false));
    let identifier = u16::from_be_bytes([sent[38], sent[39]]);
    opened.insert((format!("{SERVER}:77"), format!("{OWN}:{identifier}")));
    assert_eq!(opened.len(), MAPPINGS);
    a.send(&[udp(TO_A, (HOST, 4008), (REMOTE, 53), 64)]);
    until("the log has the limit", || {
        let lines = lines(&bench);
        lines
            .iter()
            .any(|line| line["event"] == "limit")
            .then_some(())
    });
    // Mappings of one host end by request, and that of the other one by its timeout.
    change(&bench, &["mappings", "flush", "--address", "10.0.0.5/32"]);
    let lines = until("each mapping has ended", || {
        let lines = lines(&bench);
        let ended = lines.iter().filter(|line| line["event"] == "deleted");
        let is_returned = lines.last().is_some_and(|line| line["event"] == "returned");
        (ended.count() >= MAPPINGS && is_returned).then_some(lines)
    });
    check_order(&lines, &opened);
    assert_eq!(collected(&collector), opened);
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!((nats[0].created, nats[0].events_lost), (MAPPINGS as u64, 0));
}

/// An event of a session: whether it begins, the inside, the external and the remote endpoint, and whether the remote host began it.
type Session = (bool, String, String, String, bool);

/// Receives this number of sessions. Returns them in the order of their events.
fn collected_sessions(collector: &UdpSocket, count: usize) -> Vec<Session> {
    let (mut sessions, mut octets) = (Vec::new(), [0; 1500]);
    while sessions.len() < count {
        let length = collector.recv(&mut octets).unwrap();
        sessions.extend(decoded(&octets[..length]).iter().map(|record| {
            // natEvent of RFC 8158: NAT44 session create and delete. natOriginatingAddressRealm.
            let is_created = match record[&230][..] {
                [4] => true,
                [5] => false,
                ref event => panic!("{event:?}"),
            };
            assert!([1, 2].contains(&record[&229][0]), "{record:?}");
            let ends = [(8, 7), (225, 227), (12, 11)];
            let [inside, outside, remote] = ends.map(|(one, port)| endpoint(record, one, port));
            (is_created, inside, outside, remote, record[&229] == [2])
        }));
    }
    sessions
}

#[test]
fn connections_have_events_with_their_remote_endpoints() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let of_log = format!(
        "nat-log-collector = \"{}\"\nnat-log-events = [\"sessions\"]",
        collector.local_addr().unwrap()
    );
    let keys = "[[nat.publish]]\nprotocol = \"tcp\"\nport = 443\nto = \"10.0.0.6:8443\"\n";
    let (bench, mut a, mut b) = start_with_log(&[], &of_log, keys);
    let mut expected = Vec::new();
    let mut expect = |inside: String, outside: String, remote: String, is_inbound| {
        expected.push((true, inside, outside, remote, is_inbound));
    };
    // Two sessions of one mapping, and answers, which have no event.
    for remote in [53, 54] {
        let sent = pass(
            &mut a,
            &mut b,
            udp(TO_A, (HOST, 4000), (REMOTE, remote), 64),
        );
        let external = source_port(&sent);
        pass(
            &mut b,
            &mut a,
            udp(TO_B, (REMOTE, remote), (OWN, external), 64),
        );
        let outside = format!("{OWN}:{external}");
        expect(
            format!("{HOST}:4000"),
            outside,
            format!("{REMOTE}:{remote}"),
            false,
        );
    }
    let sent = pass(&mut a, &mut b, echo(TO_A, HOST, REMOTE, 64, 77, false));
    let outside = format!("{OWN}:{}", u16::from_be_bytes([sent[38], sent[39]]));
    expect(format!("{HOST}:77"), outside, format!("{REMOTE}:0"), false);
    // A published port, from outside and from inside.
    pass(
        &mut b,
        &mut a,
        tcp(TO_B, (REMOTE, 900), (OWN, 443), 64, false),
    );
    let (server, published) = (format!("{SERVER}:8443"), format!("{OWN}:443"));
    expect(
        server.clone(),
        published.clone(),
        format!("{REMOTE}:900"),
        true,
    );
    a.send(&[tcp(TO_A, (HOST, 901), (OWN, 443), 64, false)]);
    let outside = format!("{OWN}:{}", source_port(&a.receive(1).remove(0)));
    expect(format!("{HOST}:901"), outside, published, false);
    // Traffic of the router itself has no session.
    b.send(&[echo(TO_B, REMOTE, OWN, 64, 5, false)]);
    b.receive(1);
    let begun = collected_sessions(&collector, expected.len());
    assert_eq!(begun, expected);
    change(&bench, &["connections", "flush"]);
    let ended: BTreeSet<Session> = collected_sessions(&collector, expected.len())
        .into_iter()
        .collect();
    let deleted: BTreeSet<Session> = expected
        .iter()
        .cloned()
        .map(|(_, inside, outside, remote, is_inbound)| {
            (false, inside, outside, remote, is_inbound)
        })
        .collect();
    assert_eq!(ended, deleted);
    let lines = until("the log has all events", || {
        let lines = lines(&bench);
        (lines.len() >= 2 * expected.len()).then_some(lines)
    });
    assert_eq!(lines.len(), 2 * expected.len());
    for (line, (_, inside, outside, remote, is_inbound)) in lines.iter().zip(&expected) {
        assert_eq!(text(line, "event"), "session-created");
        let ends = ["inside", "outside", "remote"].map(|key| text(line, key));
        assert_eq!(ends, [inside.clone(), outside.clone(), remote.clone()]);
        let direction = if *is_inbound { "inbound" } else { "outbound" };
        assert_eq!(
            (&line["direction"], &line["vrf"]),
            (&direction.into(), &"main".into())
        );
    }
    assert_eq!(text(&lines[4], "remote_inside"), server);
    assert!(
        lines[..4]
            .iter()
            .all(|line| line["remote_inside"].is_null())
    );
    let nats: Vec<NatReport> = bench.show("nat");
    assert_eq!(nats[0].events_lost, 0);
}
