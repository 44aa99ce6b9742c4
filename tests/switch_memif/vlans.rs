// SPDX-License-Identifier: Apache-2.0
//! Bridges with VLANs, static entries, groups and limits, as observed on the wire.

use quietwire_packet::VlanId;
use quietwire_switch::report::{
    FdbReport, FlappingReport, PortDrop, PortDrops, PortReport, StatsReport, VlanReport,
};

use crate::bench::{Bench, Peer, change, frame, refused, until};

const BROADCAST: [u8; 6] = [0xff; 6];

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn vlan(number: u16) -> Option<VlanId> {
    VlanId::new(number).ok()
}

/// Returns the frame with a tag before its type (IEEE 802.1Q, section 9.3).
pub(crate) fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend(tpid.to_be_bytes());
    tagged.extend(tci.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// Checks with a last frame, which all of these ports receive, that no other arrived before it.
fn nothing_more(bench: &Bench, peers: &mut [Peer]) {
    for port in ["a", "b", "c", "d"].iter().take(peers.len()) {
        let counts = |bench: &Bench| -> u64 {
            let ports: Vec<PortReport> = bench.show("ports");
            let of = ports.iter().find(|one| one.counts.name == *port).unwrap();
            of.counts.tx_frames
        };
        let before = counts(bench);
        assert_eq!(before, counts(bench));
    }
    for peer in peers {
        assert_eq!(peer.receive_now(), Vec::<Vec<u8>>::new());
    }
}

fn drops(bench: &Bench, port: usize) -> PortDrops {
    let ports: Vec<PortReport> = bench.show("ports");
    ports[port].counts.drops
}

#[test]
fn access_trunk_native_and_tunnel_ports() {
    let bench = Bench::start(&["a", "b", "c", "d"], &["--bridge", "lan=a,b,c,d"]);
    let mut peers = ["a", "b", "c", "d"].map(|name| bench.peer(name));
    change(&bench, &["set", "port", "a", "--access", "10"]);
    change(
        &bench,
        &["set", "port", "b", "--trunk", "10,20", "--native", "30"],
    );
    change(&bench, &["set", "port", "c", "--access", "20"]);
    change(&bench, &["set", "port", "d", "--access", "30"]);

    // From an access port to a trunk: tagged; not to the access ports of other VLANs.
    let call = frame(BROADCAST, mac(1), 1);
    peers[0].send(std::slice::from_ref(&call));
    assert_eq!(peers[1].receive(1), [tagged(&call, CUSTOMER, 10)]);
    // From the trunk, one frame of each VLAN: untagged. The priority bits are the frame's own.
    let (to_a, to_c, to_d) = (
        frame(mac(1), mac(2), 2),
        frame(BROADCAST, mac(2), 3),
        frame(BROADCAST, mac(2), 4),
    );
    peers[1].send(&[
        tagged(&to_a, CUSTOMER, 0xe00a),
        tagged(&to_c, CUSTOMER, 20),
        to_d.clone(),
        // A VLAN that the trunk does not carry.
        tagged(&to_d, CUSTOMER, 40),
    ]);
    assert_eq!(peers[0].receive(1), [to_a]);
    assert_eq!(peers[2].receive(1), [to_c]);
    assert_eq!(peers[3].receive(1), [to_d]);
    // Back over the native VLAN: untagged on the trunk.
    let answer = frame(mac(2), mac(4), 5);
    peers[3].send(std::slice::from_ref(&answer));
    assert_eq!(peers[1].receive(1), [answer]);
    nothing_more(&bench, &mut peers);
    assert_eq!(drops(&bench, 1)[PortDrop::NotMember], 1);

    // Addresses are learned per VLAN.
    let mut entries: Vec<FdbReport> = bench.show("fdb");
    entries.sort_by_key(|entry| (entry.vlan, entry.mac));
    let observed: Vec<(Option<VlanId>, &str)> = entries
        .iter()
        .map(|entry| (entry.vlan, entry.port.as_str()))
        .collect();
    assert_eq!(
        observed,
        [
            (vlan(10), "a"),
            (vlan(10), "b"),
            (vlan(20), "b"),
            (vlan(30), "b"),
            (vlan(30), "d")
        ]
    );
    let vlans: Vec<VlanReport> = bench.show("vlans");
    assert_eq!(vlans.len(), 3);
    assert_eq!(
        (vlans[0].tagged.join(","), vlans[0].untagged.join(",")),
        ("b".to_owned(), "a".to_owned())
    );
    assert_eq!(vlans[0].entries, 2);

    // A provider's VLAN: the customer's tags are payload, and the trunk to the provider carries both.
    change(
        &bench,
        &[
            "set", "port", "a", "--reset", "--tunnel", "50", "--tag", "service",
        ],
    );
    change(
        &bench,
        &[
            "set", "port", "b", "--reset", "--trunk", "50", "--tag", "service",
        ],
    );
    let inner = tagged(&frame(BROADCAST, mac(6), 6), CUSTOMER, 10);
    peers[0].send(std::slice::from_ref(&inner));
    assert_eq!(peers[1].receive(1), [tagged(&inner, SERVICE, 50)]);
    let back = tagged(&frame(mac(6), mac(7), 7), CUSTOMER, 10);
    peers[1].send(&[tagged(&back, SERVICE, 50)]);
    assert_eq!(peers[0].receive(1), [back]);
    nothing_more(&bench, &mut peers);
}

#[test]
fn vlans_are_added_to_a_trunk_and_removed() {
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let mut peers = ["a", "b"].map(|name| bench.peer(name));
    for port in ["a", "b"] {
        change(&bench, &["add", "vlan", port, "10-12"]);
    }
    let call = tagged(&frame(BROADCAST, mac(1), 1), CUSTOMER, 12);
    peers[0].send(std::slice::from_ref(&call));
    assert_eq!(peers[1].receive(1), std::slice::from_ref(&call));
    change(&bench, &["del", "vlan", "b", "12"]);
    change(&bench, &["add", "vlan", "b", "11", "--untagged"]);
    let other = frame(BROADCAST, mac(1), 2);
    peers[0].send(&[call, tagged(&other, CUSTOMER, 11)]);
    assert_eq!(peers[1].receive(1), [other]);
    nothing_more(&bench, &mut peers);
    let error = refused(&bench, &["del", "vlan", "b", "12"]);
    assert!(error.contains("VLAN 12 is not in its trunk"), "{error}");
    let error = refused(&bench, &["add", "vlan", "x", "12"]);
    assert!(error.contains("no such port: 'x'"), "{error}");
    let error = refused(&bench, &["add", "vlan", "a", "12-10"]);
    assert!(error.contains("not a set of VLANs"), "{error}");

    // The settings are in the configuration file that makes the same switch.
    let config: String = bench.show("config");
    for line in [
        "trunk = \"10-12\"",
        "trunk = \"10-11\"",
        "untagged = \"11\"",
    ] {
        assert!(config.contains(line), "{config}");
    }
}

#[test]
fn static_entries_stay_and_flushed_ones_go() {
    let bench = Bench::start(&["a", "b", "c"], &["--bridge", "lan=a,b,c"]);
    let mut peers = ["a", "b", "c"].map(|name| bench.peer(name));
    change(&bench, &["add", "fdb", "lan", "02:00:00:00:00:09", "c"]);
    // A frame with its address on another port does not move it.
    let thief = frame(BROADCAST, mac(9), 1);
    peers[1].send(std::slice::from_ref(&thief));
    for at in [0, 2] {
        assert_eq!(peers[at].receive(1), std::slice::from_ref(&thief));
    }
    let to_nine = frame(mac(9), mac(1), 2);
    peers[0].send(std::slice::from_ref(&to_nine));
    assert_eq!(peers[2].receive(1), std::slice::from_ref(&to_nine));
    nothing_more(&bench, &mut peers);
    let stats: StatsReport = bench.show("stats");
    assert_eq!(stats.bridges[0].static_elsewhere, 1);
    let count = |is_static: bool| {
        let entries: Vec<FdbReport> = bench.show("fdb");
        entries
            .iter()
            .filter(|entry| entry.is_static == is_static)
            .count()
    };
    assert_eq!((count(true), count(false)), (1, 1));

    change(&bench, &["flush", "lan", "--port", "b"]);
    assert_eq!((count(true), count(false)), (1, 1));
    change(&bench, &["flush", "lan"]);
    assert_eq!((count(true), count(false)), (1, 0));
    change(&bench, &["del", "fdb", "lan", "02:00:00:00:00:09"]);
    assert_eq!(count(true), 0);
    peers[0].send(std::slice::from_ref(&to_nine));
    for at in [1, 2] {
        assert_eq!(peers[at].receive(1), std::slice::from_ref(&to_nine));
    }
    let error = refused(&bench, &["del", "fdb", "lan", "02:00:00:00:00:09"]);
    assert!(error.contains("no static entry"), "{error}");
    let error = refused(&bench, &["add", "fdb", "lan", "03:00:00:00:00:09", "c"]);
    assert!(error.contains("03:00:00:00:00:09"), "{error}");
    let error = refused(&bench, &["flush", "wan"]);
    assert!(error.contains("no such bridge: 'wan'"), "{error}");
}

#[test]
fn groups_limits_and_floods() {
    let bench = Bench::start(&["a", "b", "c"], &["--bridge", "lan=a,b,c"]);
    let mut peers = ["a", "b", "c"].map(|name| bench.peer(name));
    // Ports of one group do not forward to each other.
    for port in ["a", "b"] {
        change(&bench, &["set", "port", port, "--split-horizon", "1"]);
    }
    let call = frame(BROADCAST, mac(1), 1);
    peers[0].send(std::slice::from_ref(&call));
    assert_eq!(peers[2].receive(1), [call]);
    peers[1].send(&[frame(mac(1), mac(2), 2)]);
    until("the frame is dropped", || {
        (drops(&bench, 1)[PortDrop::SplitHorizon] == 1).then_some(())
    });

    // Two addresses at a time; frames of others are dropped.
    change(
        &bench,
        &[
            "set",
            "port",
            "c",
            "--learning-limit",
            "2",
            "--over-limit",
            "drop",
        ],
    );
    let calls: Vec<Vec<u8>> = (10..13).map(|n| frame(mac(1), mac(n), n)).collect();
    peers[2].send(&calls);
    assert_eq!(peers[0].receive(2), calls[..2]);
    until("the third is dropped", || {
        (drops(&bench, 2)[PortDrop::OverLimit] == 1).then_some(())
    });

    // Kinds of flooded frames that a port sends, and the rate of those that it accepts.
    change(&bench, &["set", "port", "c", "--flood-broadcast", "false"]);
    peers[0].send(&[frame(BROADCAST, mac(1), 3), frame(mac(99), mac(1), 4)]);
    assert_eq!(peers[2].receive(1), [frame(mac(99), mac(1), 4)]);
    change(&bench, &["set", "port", "a", "--storm-broadcast", "1"]);
    change(&bench, &["set", "port", "c", "--reset"]);
    let storm: Vec<Vec<u8>> = (0..200).map(|n| frame(BROADCAST, mac(1), n)).collect();
    peers[0].send(&storm);
    peers[0].send(&[frame(mac(99), mac(1), 6)]);
    let mut passed = Vec::new();
    until("the frame after the storm arrives", || {
        passed.extend(peers[2].receive_now());
        (passed.last() == Some(&frame(mac(99), mac(1), 6))).then_some(())
    });
    // One per second, and the contents of the limit's bucket.
    assert!(passed.len() < 150, "{}", passed.len());
    assert_eq!(
        drops(&bench, 0)[PortDrop::StormBroadcast],
        201 - passed.len() as u64
    );
}

#[test]
fn an_address_that_flaps_is_shown() {
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let mut peers = ["a", "b"].map(|name| bench.peer(name));
    for _ in 0..50 {
        for (from, to) in [(0, 1), (1, 0)] {
            let call = frame(BROADCAST, mac(1), 1);
            peers[from].send(std::slice::from_ref(&call));
            assert_eq!(peers[to].receive(1), [call]);
        }
    }
    let flapping: Vec<FlappingReport> = bench.show("flapping");
    assert_eq!(flapping.len(), 1);
    assert!(flapping[0].moves > 10, "{flapping:?}");
    let stats: StatsReport = bench.show("stats");
    assert_eq!(stats.bridges[0].moved, 99);
    assert!(stats.bridges[0].flapped > 10);
}
