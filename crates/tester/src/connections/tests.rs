// SPDX-License-Identifier: Apache-2.0
//! Both ends of runs over a simulated network, from a seed: losses, duplicates, reordering, and a NAT.

mod background;
mod methods;
mod network;

use std::path::Path;

use super::client::Client;
use super::result::{ConnectionHealth, RunTimes, assemble};
use super::session::Session;
use super::*;
use crate::validity::{InvalidCause, Validity};
pub(crate) use network::Delivery;
use network::{Faults, Network};

const SECOND: u64 = 1_000_000_000;

fn description(text: &str) -> Connections {
    Connections::parse(text, Path::new("c.toml")).unwrap()
}

/// Runs a description over a network for a second and the time that is left over.
fn run(text: &str, network: &mut Network) -> ConnectionResult {
    let description = description(text);
    let mut session = Session::new(&description, SECOND);
    let elapsed_ns = network.run(&mut session, SECOND, 400 * SECOND);
    let times = RunTimes {
        started_unix_ns: 1,
        duration_s: 1.0,
        elapsed_s: elapsed_ns as f64 / 1e9,
    };
    assemble(session, &description, times, ConnectionHealth::default()).unwrap()
}

/// Runs a description for so many seconds through a device, which decides on each frame and may change it.
pub(crate) fn run_through(
    description: &Connections,
    duration_s: f64,
    device: impl FnMut(&mut [u8]) -> Delivery + 'static,
) -> ConnectionResult {
    let mut network = Network::new(1, Faults::default());
    network.device = Some(Box::new(device));
    let duration = (duration_s * SECOND as f64) as u64;
    let mut session = Session::new(description, duration);
    if let Some(client) = &mut session.client {
        client.log_ends(1 << 16);
    }
    let elapsed_ns = network.run(&mut session, duration, 60 * SECOND);
    let times = RunTimes {
        started_unix_ns: 1,
        duration_s,
        elapsed_s: elapsed_ns as f64 / SECOND as f64,
    };
    assemble(session, description, times, ConnectionHealth::default()).unwrap()
}

const MIX: &str = "
[[connections.mix]]
name = \"web\"
share = 4.0
port = 80
request = [52, 4000]
answer = [1, 20000]
transactions = 3
think-ms = 5.0
[[connections.mix]]
name = \"dns\"
protocol = \"udp\"
port = 53
request = [52, 80]
answer = [60, 400]
[[connections.mix]]
name = \"voice\"
protocol = \"udp\"
port = 5004
request = 172
answer = 172
transactions = 20
interval-ms = 20.0
";

fn of_mix(head: &str) -> String {
    format!(
        "[connections]\n{head}\n[connections.client]\ncount = 10\n[connections.server]\ncount = 3\n{MIX}"
    )
}

#[test]
fn a_mix_over_a_clean_network_is_complete() {
    for seed in 0..8 {
        let text = of_mix(&format!("rate = 500.0\nseed = {seed}"));
        let result = run(&text, &mut Network::new(seed, Faults::default()));
        let client = result.client.unwrap();
        assert_eq!((client.scheduled, client.opened), (500, 500));
        assert_eq!(client.completed, 500, "{client:?}");
        assert_eq!((client.failed.len(), client.unfinished), (0, 0));
        assert_eq!(client.tcp, TcpResult::default());
        let [web, dns, voice] = &client.mix[..] else {
            panic!("{client:?}");
        };
        assert!(
            web.opened > 250 && dns.opened > 40 && voice.opened > 40,
            "{client:?}"
        );
        let transactions = 3 * web.opened + dns.opened + 20 * voice.opened;
        assert_eq!(client.transactions, transactions);
        assert_eq!(client.transaction.samples, transactions);
        assert_eq!(client.handshake.samples, web.opened);
        // A millisecond each way.
        assert!(
            (2_000_000..3_000_000).contains(&client.handshake.min_ns),
            "{client:?}"
        );
        let server = result.server.unwrap();
        assert_eq!(
            (server.accepted, server.completed),
            (web.opened, web.opened)
        );
        assert_eq!(server.datagrams, dns.opened + 20 * voice.opened);
        assert_eq!(server.translations.unchanged, 500);
        assert_eq!(server.tcp, TcpResult::default());
        assert_eq!(result.validity, Validity::Valid);
    }
}

#[test]
fn losses_are_repaired_and_counted() {
    let faults = Faults {
        lost: 100,
        duplicated: 100,
        delayed: 100,
        damaged: 0,
    };
    for seed in 0..10 {
        let text = of_mix(&format!("rate = 300.0\nseed = {seed}"));
        let result = run(&text, &mut Network::new(seed, faults));
        let client = result.client.unwrap();
        assert_eq!(client.completed + client.failed.values().sum::<u64>(), 300);
        // UDP loses what the network loses. TCP loses nothing.
        let causes: Vec<_> = client.failed.keys().copied().collect();
        assert!(
            causes.iter().all(|cause| *cause == FailureCause::NoAnswer),
            "{client:?}"
        );
        assert_eq!(client.mix[0].failed, 0, "{client:?}");
        assert!(client.lost_datagrams > 0 && client.tcp.retransmitted_segments > 0);
    }
}

#[test]
fn damage_is_noticed_even_with_correct_checksums() {
    let faults = Faults {
        damaged: 200,
        ..Faults::default()
    };
    let result = run(&of_mix("rate = 300.0"), &mut Network::new(3, faults));
    let (client, server) = (result.client.unwrap(), result.server.unwrap());
    let damaged = |failed: &std::collections::BTreeMap<FailureCause, u64>| {
        failed.get(&FailureCause::Damaged).copied().unwrap_or(0)
    };
    assert!(
        damaged(&client.failed) + damaged(&server.failed) > 10,
        "{client:?} {server:?}"
    );
    assert_eq!(client.completed + client.failed.values().sum::<u64>(), 300);
}

#[test]
fn a_nat_is_learned_at_the_server() {
    let mut network = Network::new(1, Faults::default());
    network.nat = Some(network::Nat::new(2, 20_000));
    let text = "[connections]\nrate = 400.0\ntime-wait-ms = 20.0\n[connections.client]\ncount = 4\nports = [1024, 1049]\n";
    let result = run(text, &mut network);
    let client = result.client.unwrap();
    assert_eq!(client.completed, 400, "{client:?}");
    let observed = result.server.unwrap().translations;
    assert_eq!((observed.unchanged, observed.changed), (0, 400));
    let pool: Vec<String> = observed
        .pool
        .iter()
        .map(|it| it.address.to_string())
        .collect();
    assert_eq!(pool, ["203.0.113.0", "203.0.113.1"]);
    assert!(
        observed
            .pool
            .iter()
            .all(|it| it.first_port >= 20_000 && it.last_port < 20_104)
    );
    // 104 endpoints, of which each had one mapping all the time.
    assert_eq!(
        (
            observed.same_mapping,
            observed.other_port,
            observed.other_address
        ),
        (296, 0, 0)
    );
    // A NAT that forgets.
    let mut network = Network::new(1, Faults::default());
    network.nat = Some(network::Nat::new(2, 20_000).forgetting());
    let server = run(text, &mut network).server.unwrap();
    assert_eq!(server.nat_check, None);
    let observed = server.translations;
    assert_eq!(observed.same_mapping, 0);
    assert_eq!(observed.other_port + observed.other_address, 296);
}

#[test]
fn a_nat_is_checked_against_what_is_expected() {
    let text = |nat: &str| {
        format!(
            "[connections]\nrate = 400.0\ntime-wait-ms = 20.0\n[connections.client]\ncount = 4\nports = [1024, 1049]\n[connections.nat]\n{nat}"
        )
    };
    let pool = "pool = [\"203.0.113.0/31\"]\nports = [20000, 20103]\n";
    let checked = |nat: &str, network: network::Nat| {
        let mut clean = Network::new(1, Faults::default());
        clean.nat = Some(network);
        let server = run(&text(nat), &mut clean).server.unwrap();
        server.nat_check.unwrap()
    };
    let keeps = || network::Nat::new(2, 20_000);
    let good = checked(&format!("{pool}same-mapping = true\n"), keeps());
    assert_eq!((good.conversations, good.violating), (400, 0), "{good:?}");
    // A NAT that forgets: as often as an endpoint came again.
    let forgets = checked(
        "pool = [\"203.0.113.0/31\"]\nsame-mapping = true\n",
        keeps().forgetting(),
    );
    assert_eq!(forgets.violating, 296, "{forgets:?}");
    assert_eq!(forgets.faults.get(&NatFault::OtherMapping), Some(&296));
    assert_eq!(forgets.first.len(), 8);
    // Half of the conversations have the second address, and a part the higher ports.
    let narrow = "pool = [\"203.0.113.0\"]\nports = [20000, 20103]\n";
    let outside = checked(narrow, keeps());
    assert_eq!(
        outside.faults.get(&NatFault::OutsidePool),
        Some(&200),
        "{outside:?}"
    );
    let none = checked("", keeps());
    assert_eq!(none.faults.get(&NatFault::Changed), Some(&400));
}

#[test]
fn a_number_of_conversations_is_kept_open() {
    let entry = "[[connections.mix]]\nname = \"a\"\nport = 80\nrequest = 60\nanswer = 60\ntransactions = 5\nthink-ms = 100.0\n";
    let text = format!("[connections]\nconcurrent = 50\n{entry}");
    let result = run(&text, &mut Network::new(1, Faults::default()));
    let client = result.client.unwrap();
    assert_eq!(client.open_largest, 50);
    // Each lasts for 0.41 s.
    assert!((100..=150).contains(&client.opened), "{client:?}");
    assert_eq!(client.completed, client.opened);
    let limited = format!("[connections]\nconcurrent = 50\nrate = 20.0\n{entry}");
    let result = run(&limited, &mut Network::new(1, Faults::default()));
    assert!((20..=21).contains(&result.client.unwrap().opened));
}

#[test]
fn failures_have_their_causes() {
    // A network without a server, one that refuses, and a server's table that is full.
    let base = "[connections]\nrate = 50.0\nsyn-retries = 1\n";
    let mut network = Network::new(1, Faults::default());
    network.is_broken = true;
    let result = run(base, &mut network);
    let client = result.client.unwrap();
    let failed: Vec<_> = client.failed.into_iter().collect();
    assert_eq!(failed, [(FailureCause::NotEstablished, 50)]);
    assert_eq!(client.established, 0);
    assert_eq!(result.validity, Validity::Valid);
    // The client's ports are not those of the server, so the server resets.
    let mut network = Network::new(1, Faults::default());
    network.changes_port = true;
    let client = run(base, &mut network).client.unwrap();
    assert!(
        client.failed.contains_key(&FailureCause::Refused),
        "{client:?}"
    );
    let full = "[connections]\nrate = 500.0\nopen-max = 20\ntime-wait-ms = 1000.0\n";
    let result = run(full, &mut Network::new(1, Faults::default()));
    assert_eq!(
        result.validity.cause(),
        Some(InvalidCause::RateMissed),
        "{result:?}"
    );
}

#[test]
fn an_end_is_small() {
    // The record of a connection with its key, its timer and its places in the index.
    let octets = Client::octets_per_conversation();
    assert!(octets <= 200, "{octets}");
}

const FLOOD: &str = "\n[connections.flood]\nrate = 5000.0\ncount = 300\n";

#[test]
fn a_flood_goes_beside_the_conversations_and_has_no_answer() {
    let text = of_mix("rate = 200.0") + FLOOD;
    let result = run(&text, &mut Network::new(1, Faults::default()));
    let flood = result.flood.unwrap();
    assert_eq!((flood.scheduled, flood.sent), (5000, 5000));
    assert_eq!(flood.arrived, Some(5000));
    let (client, server) = (result.client.unwrap(), result.server.unwrap());
    assert_eq!((client.completed, client.opened), (200, 200));
    assert_eq!(server.accepted, client.mix[0].opened);
    assert_eq!(client.tcp, TcpResult::default());
    assert_eq!(server.tcp, TcpResult::default());
    assert_eq!(result.validity, Validity::Valid);
    let lossy = Faults {
        lost: 1000,
        ..Faults::default()
    };
    let result = run(&text, &mut Network::new(2, lossy));
    let flood = result.flood.unwrap();
    assert_eq!(flood.sent, 5000);
    assert!(
        flood
            .arrived
            .is_some_and(|arrived| (4300..4700).contains(&arrived))
    );
}

/// Makes the SYN of an IPv4 frame a reset, with the right checksum (RFC 1624).
fn make_reset(frame: &mut [u8]) {
    const FLAGS: usize = 14 + 20 + 13;
    const CHECKSUM: usize = 14 + 20 + 16;
    frame[FLAGS] = 0x04;
    // The word of the flags grew by 2.
    let former = u16::from_be_bytes([frame[CHECKSUM], frame[CHECKSUM + 1]]);
    let (changed, has_borrow) = former.overflowing_sub(2);
    let changed = changed.wrapping_sub(u16::from(has_borrow));
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&changed.to_be_bytes());
}

#[test]
fn resets_of_a_device_are_no_syns_of_a_flood() {
    let description = description(&format!("[connections]\nrate = 100.0\n{FLOOD}"));
    let mut syns = 0;
    let result = run_through(&description, 0.5, move |frame| {
        // Source addresses of the flood: 198.19.0.1 and the following.
        if frame[26..28] == [198, 19] {
            syns += 1;
            if syns % 5 == 0 {
                make_reset(frame);
            }
        }
        Delivery::Forward
    });
    let flood = result.flood.unwrap();
    assert_eq!((flood.sent, flood.arrived), (2500, Some(2000)));
    let server = result.server.unwrap();
    assert_eq!(server.tcp, TcpResult::default());
    assert_eq!(result.client.unwrap().completed, 50);
}

/// Runs connections through a device that keeps at most a hundred half-open connections. Returns the number of completed ones.
fn completed_beside(flood: &str) -> u64 {
    const FLAGS: usize = 14 + 20 + 13;
    let description = description(&format!(
        "[connections]\nrate = 100.0\nsyn-retries = 0\n{flood}"
    ));
    let mut half_open = std::collections::HashSet::new();
    let result = run_through(&description, 0.5, move |frame| {
        let endpoint = (frame[26..30].to_vec(), frame[34..36].to_vec());
        match frame[FLAGS] & 0x12 {
            0x02 if half_open.len() >= 100 => return Delivery::Drop,
            0x02 => {
                half_open.insert(endpoint);
            }
            0x10 => {
                half_open.remove(&endpoint);
            }
            _ => {}
        }
        Delivery::Forward
    });
    let client = result.client.unwrap();
    assert_eq!(client.opened, 50);
    client.completed
}

#[test]
fn a_device_that_a_flood_exhausts_fails_beside_it_only() {
    assert_eq!(completed_beside(""), 50);
    let beside = completed_beside(FLOOD);
    assert!(beside < 15, "{beside}");
}
