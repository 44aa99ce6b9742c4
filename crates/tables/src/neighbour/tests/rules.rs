// SPDX-License-Identifier: Apache-2.0
//! Single rules of the RFCs, and the limits of the table.

use super::*;

const OTHER: MacAddress = MacAddress::from_u64(0x0200_0000_0002);

fn limits(neighbours: usize) -> Limits {
    Limits {
        neighbours,
        ..Limits::default()
    }
}

/// Returns a neighbour that sent a request to us, and is not confirmed.
fn asked_us(table: &mut Table, now: Duration, host: u8) -> Vec<Action<u32>> {
    let question = arp_frame(1, [192, 0, 2, host], THEIRS, [192, 0, 2, 1]);
    table.arp(now, &question)
}

fn confirmed(table: &mut Table, now: Duration, host: u8) {
    table.resolve(now, &format!("192.0.2.{host}"), None);
    table.arp(now, &arp_reply([192, 0, 2, host], THEIRS));
}

fn listed(table: &Table) -> Vec<String> {
    let all = table.neighbours.list(Duration::ZERO);
    all.map(|shown| shown.address.to_string()).collect()
}

/// RFC 4861, section 7.2.5: an unsolicited message with the same address leaves the state unchanged, and confirms nothing.
#[test]
fn unsolicited_advertisements_confirm_nothing_rfc_4861_7_2_5() {
    let mut table = Table::new();
    table.resolve(s(0), "2001:db8::9", None);
    table.nd(s(0), &advertisement("2001:db8::9", THEIRS, 0x60));
    let due = table.neighbours.next_deadline().unwrap();
    for now in 1..10 {
        table.nd(s(now), &advertisement("2001:db8::9", THEIRS, 0x20));
    }
    assert_eq!(table.state("2001:db8::9"), Some(State::Reachable));
    assert_eq!(table.neighbours.next_deadline(), Some(due));
}

/// RFC 4861, section 7.3.3: a neighbour that keeps sending without being confirmed is probed nevertheless.
#[test]
fn a_stale_neighbour_that_is_used_is_probed_rfc_4861_7_3_3() {
    let mut table = Table::new();
    for now in 0..5 {
        asked_us(&mut table, s(now), 9);
        table.tick(s(now));
    }
    assert!(matches!(table.tick(s(5))[..], [Action::Transmit { .. }]));
    assert_eq!(table.state("192.0.2.9"), Some(State::Probe));
}

/// RFC 4861, section 4.3: a unicast solicitation may omit the option; section 7.2.4: it is answered.
#[test]
fn a_solicitation_without_option_is_answered_rfc_4861_7_2_4() {
    let mut table = Table::new();
    let asked = nd_frame(135, 0, "2001:db8::9", "2001:db8::1", "2001:db8::1", None);
    let actions = table.nd(s(0), &asked);
    let [Action::Transmit { frame, .. }] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(frame[..6], THEIRS.to_u64().to_be_bytes()[2..]);
    assert_eq!((frame[54], frame[58]), (136, 0xe0));
    // A sender without an address option is not added.
    assert_eq!(table.state("2001:db8::9"), None);
}

/// RFC 1122, section 3.2.1.3: broadcast, multicast and unspecified addresses are not neighbours. RFC 3021: on a /31 link, both are hosts.
#[test]
fn only_single_hosts_are_neighbours_rfc_1122_3_2_1_3() {
    let mut table = Table::new();
    table
        .interface_info
        .addresses
        .push("198.51.100.0/31".parse().unwrap());
    for address in [
        "192.0.2.255",
        "192.0.2.0",
        "192.0.2.1",
        "255.255.255.255",
        "0.0.0.0",
        "224.0.0.5",
        "ff02::1",
        "::",
        "2001:db8::1",
    ] {
        assert_eq!(table.resolve(s(0), address, Some(1)), [], "{address}");
    }
    assert_eq!(table.neighbours.counts().refused, 9);
    assert_eq!(table.resolve(s(0), "198.51.100.1", None).len(), 1);
    let lies = arp_frame(1, [192, 0, 2, 255], THEIRS, [192, 0, 2, 1]);
    table.arp(s(0), &lies);
    assert_eq!(listed(&table), ["198.51.100.1"]);
}

/// RFC 826 defines two operations; others (for example RFC 2390's) do not concern us.
#[test]
fn other_operations_change_nothing_rfc_826() {
    let mut table = Table::new();
    confirmed(&mut table, s(0), 9);
    for operation in [0, 3, 8, 9] {
        let frame = arp_frame(operation, [192, 0, 2, 9], OTHER, [192, 0, 2, 1]);
        assert_eq!(table.arp(s(1), &frame), []);
    }
    assert_eq!(table.neighbours.mac(3, ip("192.0.2.9")), Some(THEIRS));
}

/// RFC 6583, section 7: a resolved neighbour is worth more than one being resolved, and that more than one that only sent to us.
#[test]
fn the_least_useful_makes_space_rfc_6583() {
    let mut table = Table::with(limits(3));
    confirmed(&mut table, s(0), 10);
    asked_us(&mut table, s(0), 20);
    asked_us(&mut table, s(1), 21);
    // Another unconfirmed neighbour evicts the one that has been silent longest.
    let actions = asked_us(&mut table, s(2), 22);
    let lost = |host: u8| Action::Lost {
        interface: 3,
        address: Ipv4Addr::new(192, 0, 2, host).into(),
    };
    assert_eq!(actions[0], lost(20));
    // A neighbour being resolved evicts an unconfirmed one first, then another one being resolved.
    assert_eq!(table.resolve(s(3), "192.0.2.30", Some(1))[0], lost(21));
    assert_eq!(table.resolve(s(3), "192.0.2.31", Some(2))[0], lost(22));
    let unreachable = Action::Unreachable {
        interface: 3,
        address: ip("192.0.2.30"),
        packets: vec![1],
    };
    assert_eq!(table.resolve(s(4), "192.0.2.32", None)[0], unreachable);
    assert_eq!(asked_us(&mut table, s(4), 23).len(), 1, "only the answer");
    assert_eq!(listed(&table), ["192.0.2.10", "192.0.2.31", "192.0.2.32"]);
    assert_eq!(table.neighbours.counts().evicted, 4);
    assert_eq!(table.neighbours.counts().no_space, 1);
}

/// A static neighbour evicts any neighbour except other static ones.
#[test]
fn set_neighbours_find_space() {
    let mut table = Table::with(limits(2));
    confirmed(&mut table, s(0), 10);
    confirmed(&mut table, s(1), 11);
    for host in 20..22 {
        let address = Ipv4Addr::new(192, 0, 2, host).into();
        assert!(
            table
                .neighbours
                .set(s(2), 3, address, THEIRS, &mut table.out)
        );
    }
    let lost = table
        .out
        .drain(..)
        .filter(|action| matches!(action, Action::Lost { .. }));
    assert_eq!(lost.count(), 2);
    let address = ip("192.0.2.22");
    assert!(
        !table
            .neighbours
            .set(s(2), 3, address, THEIRS, &mut table.out)
    );
    assert_eq!(listed(&table), ["192.0.2.20", "192.0.2.21"]);
    assert_eq!(table.resolve(s(3), "192.0.2.30", Some(1)), []);
    assert_eq!(table.neighbours.counts().overflowed, 1);
}

/// RFC 1122, section 2.3.2.2: the latest packets are kept; packets of all neighbours together have a limit too.
#[test]
fn waiting_packets_are_bounded_rfc_1122_2_3_2_2() {
    let mut table = Table::with(Limits {
        waiting: 3,
        waiting_in_all: 4,
        ..Limits::default()
    });
    for packet in 1..=4 {
        table.resolve(s(0), "192.0.2.9", Some(packet));
    }
    table.resolve(s(0), "192.0.2.10", Some(5));
    // No space for another neighbour's first packet; a newer packet of the same neighbour replaces an older one.
    table.resolve(s(0), "192.0.2.11", Some(6));
    table.resolve(s(0), "192.0.2.10", Some(7));
    assert_eq!(table.neighbours.counts().overflowed, 3);
    for (host, packets) in [(9, &[2, 3, 4][..]), (10, &[7]), (11, &[])] {
        let address = format!("192.0.2.{host}");
        let actions = table.arp(s(0), &arp_reply([192, 0, 2, host], THEIRS));
        assert_eq!(actions, [found(&address, THEIRS, packets)]);
    }
    table.resolve(s(0), "192.0.2.12", Some(8));
    let actions = table.arp(s(0), &arp_reply([192, 0, 2, 12], THEIRS));
    assert_eq!(actions, [found("192.0.2.12", THEIRS, &[8])]);
}

/// RFC 6583, section 7: retransmitted requests count, too. RFC 4861, section 7.3.1: probes of known neighbours are not limited.
#[test]
fn repeated_questions_are_bounded_rfc_6583() {
    let mut table = Table::with(Limits {
        asks_per_second: 10,
        ..Limits::default()
    });
    let mut sent = 0;
    for tenth in 0..100 {
        let now = Duration::from_millis(100 * tenth);
        for host in 2..200 {
            let actions = table.resolve(now, &format!("192.0.2.{host}"), None);
            sent += actions.len();
        }
        let asked = table.tick(now);
        sent += asked
            .iter()
            .filter(|action| matches!(action, Action::Transmit { .. }))
            .count();
    }
    // A burst, and ten seconds' worth.
    assert!((100..=110).contains(&sent), "{sent}");
    assert!(table.neighbours.list(s(0)).count() <= 40);

    let mut table = Table::with(Limits {
        asks_per_second: 1,
        ..Limits::default()
    });
    for host in 10..20 {
        asked_us(&mut table, s(0), host);
    }
    assert_eq!(table.tick(s(5)).len(), 10);
}

#[test]
fn a_scan_of_a_link_leaves_requests_to_the_others() {
    let mut table = Table::with(Limits {
        asks_per_second: 10,
        ..Limits::default()
    });
    for host in 2..200 {
        table.resolve(s(1), &format!("192.0.2.{host}"), None);
    }
    assert_eq!(table.neighbours.counts().asked, 10);
    table.interface_info.number = 4;
    let actions = table.resolve(s(1), "192.0.2.7", None);
    assert!(matches!(
        actions[..],
        [Action::Transmit { interface: 4, .. }]
    ));
}

/// Intervals below a microsecond add up, regardless of the number of attempts.
#[test]
fn frequent_attempts_do_not_stop_the_clock() {
    let mut table = Table::with(Limits {
        asks_per_second: 10,
        ..Limits::default()
    });
    let mut sent = 0;
    for attempt in 0..250_000 {
        let now = Duration::from_nanos(900 * attempt);
        sent += table.resolve(now, "192.0.2.10", None).len();
        table.neighbours.remove(3, ip("192.0.2.10"), &mut table.out);
        table.out.clear();
    }
    // Ten in a burst, and two in the following 225 milliseconds.
    assert_eq!(sent, 12);
}
