// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::reconcile::{LossSource, shared_out};
use super::*;
use crate::latency::LatencySummary;
use crate::trial::{FrameSizes, PortResult, Trial, TrialResult};

fn trial() -> Trial {
    Trial::new(1000.0, 1.0, FrameSizes::Fixed(64))
}

/// Simulated device with two ports. It forwards frames between them and loses those configured below.
#[derive(Clone, Debug, Default)]
struct FakeDevice {
    /// Frames that each tester port sent: before the counted part (learning and warm-up) and in it.
    sent: [[u64; 2]; 2],
    /// Frames of `sent` lost on the way to a port of the device.
    on_the_way_in: [[u64; 2]; 2],
    /// Frames dropped by a filter rule of the port.
    denied: [[u64; 2]; 2],
    /// Frames lost in the device without a counter.
    silently: [[u64; 2]; 2],
    /// Frames dropped at the output port.
    full: [[u64; 2]; 2],
    /// Frames lost on the way to the tester.
    on_the_way_out: [[u64; 2]; 2],
    /// Frames refused in the counted part.
    refused: [u64; 2],
}

fn layout() -> DeviceLayout {
    let [p0, p1] = [PortAt::new("S", "p0"), PortAt::new("S", "p1")];
    DeviceLayout {
        at_tester: vec![Some(p0.clone()), Some(p1.clone())],
        links: Vec::new(),
        joins: vec![[p0, p1]],
    }
}

/// Counter values before the trial.
const BEFORE: u64 = 1000;

fn device(port: impl Fn(usize) -> PortCounts) -> DeviceCounts {
    let ports = [0, 1].map(|index| (format!("p{index}"), port(index)));
    let element = ElementCounts {
        ports: ports.into(),
        drops: BTreeMap::new(),
        made: 0,
    };
    DeviceCounts {
        elements: [("S".to_owned(), Ok(element))].into(),
    }
}

impl FakeDevice {
    fn passed(&self, from: usize, part: usize) -> u64 {
        let lost = [
            &self.on_the_way_in,
            &self.denied,
            &self.silently,
            &self.full,
            &self.on_the_way_out,
        ];
        self.sent[from][part] - lost.iter().map(|lost| lost[from][part]).sum::<u64>()
    }

    fn counts(&self) -> [DeviceCounts; 2] {
        let both = |of: &[[u64; 2]; 2], from: usize| of[from][0] + of[from][1];
        let after = |port: usize| {
            let from = 1 - port;
            PortCounts {
                received: BEFORE + both(&self.sent, port) - both(&self.on_the_way_in, port),
                sent: BEFORE
                    + self.passed(from, 0)
                    + self.passed(from, 1)
                    + both(&self.on_the_way_out, from),
                drops: BTreeMap::new(),
            }
            .with_drops(
                DropStage::Received,
                "denied",
                BEFORE + both(&self.denied, port),
            )
            .with_drops(
                DropStage::ToSend,
                "tx_full",
                BEFORE + both(&self.full, from),
            )
        };
        let before = |_| {
            PortCounts {
                received: BEFORE,
                sent: BEFORE,
                drops: BTreeMap::new(),
            }
            .with_drops(DropStage::Received, "denied", BEFORE)
            .with_drops(DropStage::ToSend, "tx_full", BEFORE)
        };
        [device(before), device(after)]
    }

    fn result(&self) -> TrialResult {
        let sum = |of: &dyn Fn(usize) -> u64| of(0) + of(1);
        let offered = sum(&|port| self.sent[port][1] + self.refused[port]);
        let received = sum(&|port| self.passed(port, 1));
        let mut result =
            TrialResult::of_counts(&trial(), 1.0, offered, received, LatencySummary::default());
        result.ports = [0, 1]
            .map(|port| PortResult {
                name: format!("t{port}"),
                offered_frames: self.sent[port][1] + self.refused[port],
                refused_frames: self.refused[port],
                received_frames: self.passed(1 - port, 1),
                totals: PortTotals {
                    sent_frames: self.sent[port][0] + self.sent[port][1],
                    sent_before_frames: self.sent[port][0],
                    received_frames: self.passed(1 - port, 0) + self.passed(1 - port, 1),
                    received_before_frames: self.passed(1 - port, 0),
                    ..PortTotals::default()
                },
                ..PortResult::default()
            })
            .to_vec();
        result
    }

    fn account(&self) -> LossAccount {
        let [before, after] = self.counts();
        let result = self.result();
        let account = account(&result, &layout(), &before, &after).unwrap();
        assert_eq!(total(&account), result.lost_frames, "{account:?}");
        account
    }
}

fn total(account: &LossAccount) -> u64 {
    let places = account.places.iter().map(|place| place.frames);
    places.sum::<u64>() + account.tester_frames + account.unknown_frames
}

fn place(port: &str, reason: &str, frames: u64) -> LossPlace {
    LossPlace {
        element: "S".to_owned(),
        port: port.to_owned(),
        reason: reason.to_owned(),
        frames,
    }
}

/// Returns a device that receives 1000 warm-up frames and 5000 counted frames in each direction.
fn made() -> FakeDevice {
    FakeDevice {
        sent: [[1000, 5000]; 2],
        ..FakeDevice::default()
    }
}

#[test]
fn each_lost_frame_is_at_the_place_that_lost_it() {
    let lossy = FakeDevice {
        on_the_way_in: [[0, 1], [0, 2]],
        denied: [[0, 10], [0, 20]],
        silently: [[0, 100], [0, 200]],
        full: [[0, 1000], [0, 2000]],
        on_the_way_out: [[0, 30], [0, 40]],
        refused: [7, 8],
        ..made()
    };
    let mut expected = [
        place("p0", "not_received", 1),
        place("p1", "not_received", 2),
        place("p0", "denied", 10),
        place("p1", "denied", 20),
        place("p1", "not_sent", 100),
        place("p0", "not_sent", 200),
        place("p1", "tx_full", 1000),
        place("p0", "tx_full", 2000),
        place("p1", "not_arrived", 30),
        place("p0", "not_arrived", 40),
        place("p0", "receive_ring_full", 7),
        place("p1", "receive_ring_full", 8),
    ];
    expected.sort_by_key(|place| std::cmp::Reverse(place.frames));
    let account = lossy.account();
    assert_eq!(account.places, expected);
    assert_eq!((account.tester_frames, account.unknown_frames), (0, 0));
    assert!(!account.is_shared_out && account.differences.is_empty());
    assert_eq!(account.lost_before_frames, 0);
}

#[test]
fn losses_of_the_warm_up_are_left_out() {
    let at_one_place = FakeDevice {
        denied: [[100, 700], [0, 0]],
        ..made()
    };
    let account = at_one_place.account();
    assert_eq!(account.places, [place("p0", "denied", 700)]);
    assert_eq!(account.lost_before_frames, 100);
    assert!(!account.is_shared_out);

    // The counters do not show how many of the counted frames each of several places lost.
    let at_two = FakeDevice {
        denied: [[100, 500], [100, 500]],
        ..made()
    };
    let account = at_two.account();
    let expected = [place("p0", "denied", 500), place("p1", "denied", 500)];
    assert_eq!(account.places, expected);
    assert!(account.is_shared_out);

    let in_the_warm_up_only = FakeDevice {
        full: [[100, 0], [3, 0]],
        ..made()
    };
    let account = in_the_warm_up_only.account();
    assert_eq!((account.places.len(), account.lost_before_frames), (0, 103));
    assert!(!account.is_shared_out);
}

#[test]
fn uncounted_losses_may_be_the_testers_and_are_unknown_otherwise() {
    let layout = DeviceLayout {
        at_tester: vec![None, None],
        ..DeviceLayout::default()
    };
    let lossy = FakeDevice {
        denied: [[0, 10], [0, 0]],
        silently: [[0, 90], [0, 0]],
        ..made()
    };
    let [before, after] = lossy.counts();
    let mut result = lossy.result();
    result.health.missed_at_most_frames = 4;
    let account = account(&result, &layout, &before, &after).unwrap();
    assert_eq!(account.places, [place("p0", "denied", 10)]);
    assert_eq!((account.tester_frames, account.unknown_frames), (4, 86));
}

#[test]
fn frames_that_came_and_do_not_count_are_distinguished() {
    let mut result = made().result();
    result.lost_frames = 60;
    result.ports[1].damaged_frames = 10;
    result.stale_frames = 20;
    result.ports[0].misdirected_frames = 30;
    let [before, after] = made().counts();
    let account = account(&result, &layout(), &before, &after).unwrap();
    let nowhere = LossPlace {
        element: String::new(),
        ..place("", "stale", 20)
    };
    let expected = [
        place("p0", "misdirected", 30),
        nowhere,
        place("p1", "damaged", 10),
    ];
    assert_eq!(account.places, expected);
}

#[test]
fn contradictions_are_shown() {
    let one = FakeDevice {
        denied: [[0, 10], [0, 0]],
        ..made()
    };
    // The element restarted: its earlier counts are gone, so its other counters prove nothing.
    let [before, after] = one.counts();
    let restarted = device(|_| PortCounts::default().with_drops(DropStage::Received, "denied", 10));
    let reported = account(&one.result(), &layout(), &before, &restarted).unwrap();
    assert_eq!(reported.places, [place("", "not_counted", 10)]);
    let went_back = |port: &str| Difference {
        element: "S".to_owned(),
        port: port.to_owned(),
        kind: DifferenceKind::DecreasedCounter,
        frames: 3 * BEFORE - 10,
    };
    assert_eq!(reported.differences, [went_back("p0"), went_back("p1")]);
    assert!(reported.without_counters["S"].contains("restarted"));

    // A copy that was dropped, and a frame of the device itself that the tester received.
    let mut copied = after.clone();
    if let Some(Ok(element)) = copied.elements.get_mut("S") {
        let port = element.ports.get_mut("p1").unwrap();
        *port = port
            .clone()
            .with_drops(DropStage::ToSend, "tx_full", BEFORE + 5);
        port.sent += 1;
    }
    let mut result = one.result();
    result.ports[1].totals.received_frames += 1;
    let reported = account(&result, &layout(), &before, &copied).unwrap();
    assert_eq!(total(&reported), 10);
    let difference = Difference {
        element: "S".to_owned(),
        port: "p1".to_owned(),
        kind: DifferenceKind::MoreSent,
        frames: 6,
    };
    assert_eq!(reported.differences, [difference]);
    assert_eq!(reported.difference_frames(), 6);

    // More drops than missing frames, with unknown ports.
    let unknown = DeviceLayout {
        at_tester: vec![None; 2],
        ..DeviceLayout::default()
    };
    let reported = account(&one.result(), &unknown, &before, &copied).unwrap();
    assert_eq!(total(&reported), 10);
    assert_eq!(reported.differences[0].kind, DifferenceKind::MoreDropped);
    assert_eq!(reported.differences[0].frames, 5);
    assert_eq!(
        reported.differences[0].to_string(),
        "device: dropped more than is missing"
    );
}

/// Returns the layout of a device without joins: frames received on `p0` leave by `p1`, together with the device's own frames.
fn unjoined() -> DeviceLayout {
    DeviceLayout {
        joins: Vec::new(),
        ..layout()
    }
}

/// Returns the counters of an element before and after: `p0` received and `p1` sent.
fn counted(element: ElementCounts, received: PortCounts, sent: PortCounts) -> [DeviceCounts; 2] {
    let of = |ports: [PortCounts; 2], made, drops| {
        let [p0, p1] = ports;
        let element = ElementCounts {
            ports: [("p0".to_owned(), p0), ("p1".to_owned(), p1)].into(),
            drops,
            made,
        };
        DeviceCounts {
            elements: [("S".to_owned(), Ok(element))].into(),
        }
    };
    let nothing = |port: &PortCounts| PortCounts {
        drops: port.drops.keys().map(|one| (one.clone(), 0)).collect(),
        ..PortCounts::default()
    };
    let no_drops = element.drops.keys().map(|one| (one.clone(), 0)).collect();
    [
        of([nothing(&received), nothing(&sent)], 0, no_drops),
        of([received, sent], element.made, element.drops),
    ]
}

fn port(received: u64, sent: u64) -> PortCounts {
    PortCounts {
        received,
        sent,
        drops: BTreeMap::new(),
    }
}

/// Returns the result of a trial in which the tester's first port sent and its second port received these numbers of counted frames.
fn one_way(sent: PortTotals, received: PortTotals, offered: u64, counted: u64) -> TrialResult {
    let mut result =
        TrialResult::of_counts(&trial(), 1.0, offered, counted, LatencySummary::default());
    result.ports = [sent, received]
        .map(|totals| PortResult {
            totals,
            ..PortResult::default()
        })
        .to_vec();
    result
}

fn totals(sent_frames: u64, received_frames: u64) -> PortTotals {
    PortTotals {
        sent_frames,
        received_frames,
        ..PortTotals::default()
    }
}

/// Returns the topology: tester, switch, network function, switch, tester.
fn chain() -> DeviceLayout {
    let at = PortAt::new;
    DeviceLayout {
        at_tester: vec![Some(at("S", "p0")), Some(at("S", "p3"))],
        links: vec![
            [at("S", "p1"), at("V", "p0")],
            [at("V", "p1"), at("S", "p2")],
        ],
        joins: vec![
            [at("S", "p0"), at("S", "p1")],
            [at("V", "p0"), at("V", "p1")],
            [at("S", "p2"), at("S", "p3")],
        ],
    }
}

#[test]
fn elements_without_counters_are_computed_by_their_neighbours() {
    let switch = |received: [u64; 4], sent: [u64; 4]| {
        let ports = (0..4).map(|index| (format!("p{index}"), port(received[index], sent[index])));
        let counts = ElementCounts {
            ports: ports.collect(),
            ..ElementCounts::default()
        };
        DeviceCounts {
            elements: [
                ("S".to_owned(), Ok(counts)),
                ("V".to_owned(), Err("it has no agent".to_owned())),
            ]
            .into(),
        }
    };
    // The network function received 100 frames and sent 90; the switch sent 85.
    let before = switch([0; 4], [0; 4]);
    let after = switch([100, 0, 90, 0], [0, 100, 0, 85]);
    let mut result = one_way(totals(100, 0), totals(0, 85), 100, 85);
    let reported = account(&result, &chain(), &before, &after).unwrap();
    let expected = [
        LossPlace {
            element: "V".to_owned(),
            ..place("", "not_counted", 10)
        },
        place("p3", "not_sent", 5),
    ];
    assert_eq!(reported.places, expected);
    assert_eq!(reported.without_counters["V"], "it has no agent");

    let none = DeviceCounts {
        elements: [("V".to_owned(), Err("it has no agent".to_owned()))].into(),
    };
    let why = account(&result, &chain(), &none, &none).unwrap_err();
    assert_eq!(why, "V: it has no agent");
    result.ports[0].totals = PortTotals::default();
    result.ports[1].totals = PortTotals::default();
    let why = account(&result, &chain(), &before, &after).unwrap_err();
    assert!(why.contains("has no port counters"), "{why}");
}

#[test]
fn drops_of_a_part_of_an_element_are_its_own() {
    let unit = |reason: &str, may_overlap| UnitDrop {
        unit: "router".to_owned(),
        reason: reason.to_owned(),
        may_overlap,
    };
    // Of 100 frames, 60 are forwarded. The router may answer a frame without a route.
    let router = |answered: u64, frames: u64| {
        let no_route = if frames > 0 { 30 } else { 0 };
        let element = ElementCounts {
            ports: [
                ("p0".to_owned(), port(frames, answered)),
                ("p1".to_owned(), port(0, frames * 6 / 10)),
            ]
            .into(),
            drops: [
                (unit("no-route", false), no_route),
                (unit("service_full", true), 50),
                (unit("waiting", true), frames),
            ]
            .into(),
            made: answered,
        };
        DeviceCounts {
            elements: [("S".to_owned(), Ok(element))].into(),
        }
    };
    for answered in [0, 7] {
        let result = one_way(totals(100, answered), totals(0, 60), 100, 60);
        let reported = account(&result, &layout(), &router(0, 0), &router(answered, 100)).unwrap();
        let unexplained = 10 - answered;
        let expected = [
            place("router", "no-route", 30),
            place("router", "waiting", unexplained),
        ];
        assert_eq!(reported.places, expected);
        assert_eq!(reported.places[0].to_string(), "S router: no-route");
        assert_eq!((total(&reported), reported.unknown_frames), (40, answered));
        assert!(reported.differences.is_empty(), "{reported:?}");
    }
}

#[test]
fn frames_may_leave_by_ports_of_others() {
    let switch = |received: u64, to_tester: u64, elsewhere: u64, full: u64| {
        let third = port(500, elsewhere).with_drops(DropStage::ToSend, "tx_full", full);
        let element = ElementCounts {
            ports: [
                ("p0".to_owned(), port(received, 0)),
                ("p1".to_owned(), port(0, to_tester)),
                ("p2".to_owned(), third),
            ]
            .into(),
            ..ElementCounts::default()
        };
        DeviceCounts {
            elements: [("S".to_owned(), Ok(element))].into(),
        }
    };
    let result = one_way(totals(100, 0), totals(0, 60), 100, 60);
    // The third port carries other traffic as well.
    let (before, after) = (switch(0, 0, 0, 0), switch(100, 60, 1000, 30));
    let reported = account(&result, &unjoined(), &before, &after).unwrap();
    let expected = [
        place("p2", "tx_full", 30),
        place("p2", "sent_elsewhere", 10),
    ];
    assert_eq!(reported.places, expected);
    assert!(reported.differences.is_empty(), "{reported:?}");
}

#[test]
fn frames_that_an_element_made_are_no_difference_and_more_are() {
    for (made, difference) in [(9, 0), (5, 0), (3, 2), (0, 5)] {
        let element = ElementCounts {
            made,
            ..ElementCounts::default()
        };
        // 100 frames were received and forwarded; the element sent 5 more.
        let [before, after] = counted(element, port(100, 0), port(0, 105));
        let result = one_way(totals(100, 0), totals(0, 105), 100, 100);
        let reported = account(&result, &unjoined(), &before, &after).unwrap();
        assert_eq!(reported.places, []);
        let expected = Difference {
            element: "S".to_owned(),
            port: String::new(),
            kind: DifferenceKind::MoreSent,
            frames: difference,
        };
        let expected: &[Difference] = if difference > 0 { &[expected] } else { &[] };
        assert_eq!(reported.differences, expected, "{made} made");
    }
}

#[test]
fn frames_dropped_before_receipt_did_come() {
    let missed = port(90, 0).with_drops(DropStage::BeforeReceipt, "rx_missed", 10);
    let [before, after] = counted(ElementCounts::default(), missed, port(0, 90));
    let result = one_way(totals(100, 0), totals(0, 90), 100, 90);
    let reported = account(&result, &layout(), &before, &after).unwrap();
    assert_eq!(reported.places, [place("p0", "rx_missed", 10)]);
    assert_eq!(
        (reported.differences.len(), reported.unknown_frames),
        (0, 0)
    );
}

#[test]
fn frames_that_the_testers_ports_dropped_are_its_own_loss() {
    // Ten frames could not be sent. Twenty were received and dropped.
    let [before, after] = counted(ElementCounts::default(), port(90, 0), port(0, 90));
    let sent = PortTotals {
        send_error_frames: 10,
        ..totals(90, 0)
    };
    let received = PortTotals {
        receive_drop_frames: 20,
        ..totals(0, 70)
    };
    let result = one_way(sent, received, 100, 70);
    let reported = account(&result, &layout(), &before, &after).unwrap();
    assert_eq!((reported.places.len(), reported.differences.len()), (0, 0));
    assert_eq!((reported.tester_frames, reported.unknown_frames), (30, 0));
}

#[test]
fn a_part_that_dropped_nothing_leaves_the_loss_to_the_port() {
    let unit = UnitDrop {
        unit: "router".to_owned(),
        reason: "no-route".to_owned(),
        may_overlap: false,
    };
    for (dropped, expected) in [
        (0, vec![place("p1", "not_sent", 10)]),
        (
            4,
            vec![place("", "not_sent", 6), place("router", "no-route", 4)],
        ),
    ] {
        let element = ElementCounts {
            drops: [(unit.clone(), dropped)].into(),
            ..ElementCounts::default()
        };
        let [before, after] = counted(element, port(100, 0), port(0, 90));
        let result = one_way(totals(100, 0), totals(0, 90), 100, 90);
        let reported = account(&result, &layout(), &before, &after).unwrap();
        assert_eq!(reported.places, expected);
        assert!(reported.differences.is_empty());
    }
}

#[test]
fn ports_of_two_elements_are_not_joined_within_either() {
    let crossed = DeviceLayout {
        joins: vec![[PortAt::new("S", "p1"), PortAt::new("V", "p0")]],
        ..layout()
    };
    let [before, after] = counted(ElementCounts::default(), port(100, 0), port(0, 90));
    let result = one_way(totals(100, 0), totals(0, 90), 100, 90);
    let reported = account(&result, &crossed, &before, &after).unwrap();
    assert_eq!(reported.places, [place("", "not_sent", 10)]);
}

#[test]
fn losses_are_shared_out_by_the_largest_remainders() {
    let claims = |of: [u64; 3]| {
        let names =
            ["a", "b", "c"].map(|name| LossSource::At(PortAt::new(name, ""), String::new()));
        names.into_iter().zip(of).collect::<BTreeMap<_, _>>()
    };
    let shares = |whole: u64, of: [u64; 3]| {
        let claims = claims(of);
        let mut shares = shared_out(whole, &claims);
        shares.sort();
        shares.iter().map(|(_, share)| *share).collect::<Vec<u64>>()
    };
    // 35 / 9 is 3, remainder 8; 21 / 9 is 2, remainder 3; 7 / 9 is 0, remainder 7. The two remaining frames go to the first and the last.
    assert_eq!(shares(7, [5, 3, 1]), [4, 2, 1]);
    assert_eq!(shares(10, [1, 1, 1]), [4, 3, 3]);
    assert_eq!(shares(9, [5, 3, 1]), [5, 3, 1]);
    assert_eq!(shares(0, [5, 3, 1]), [0, 0, 0]);
    assert!(shares(7, [0, 0, 0]).is_empty());
}

#[test]
fn a_trial_without_frames_has_an_account() {
    let [before, after] = counted(ElementCounts::default(), port(0, 0), port(0, 0));
    let result = one_way(totals(0, 0), totals(0, 0), 0, 0);
    let reported = account(&result, &layout(), &before, &after).unwrap();
    assert_eq!((reported.lost_frames, reported.places.len()), (0, 0));
}

#[test]
fn a_trial_keeps_its_account_or_why_there_is_none() {
    let lossy = FakeDevice {
        denied: [[0, 10], [0, 0]],
        ..made()
    };
    let [before, after] = lossy.counts();
    let mut result = lossy.result();
    assert_eq!(result.loss_places(), None);
    result.account_for(&layout(), &before, &after);
    assert_eq!(result.loss_places(), Some(&lossy.account()));
    let mut without_totals = lossy.result();
    for port in &mut without_totals.ports {
        port.totals = PortTotals::default();
    }
    without_totals.account_for(&layout(), &before, &after);
    assert_eq!(without_totals.loss_places(), None);
    let why = without_totals.loss_account.unwrap();
    assert!(matches!(why, Accounted::Unavailable(why) if why.contains("has no port counters")));
}

#[test]
fn ports_of_an_element_are_known_if_those_at_the_tester_are() {
    assert_eq!(layout().ports_of("S").unwrap().len(), 2);
    assert_eq!(layout().ports_of("V"), None);
    let half = DeviceLayout {
        at_tester: vec![Some(PortAt::new("S", "p0")), None],
        ..layout()
    };
    assert_eq!(half.ports_of("S"), None);
}

#[test]
fn sums_of_accounts_keep_how_they_were_found() {
    let difference = |kind, frames| Difference {
        element: "S".to_owned(),
        port: "p0".to_owned(),
        kind,
        frames,
    };
    let account = |is_shared_out, differences| LossAccount {
        is_shared_out,
        differences,
        ..made().account()
    };
    let more = DifferenceKind::MoreSent;
    let back = DifferenceKind::DecreasedCounter;
    for (one, other) in [(true, false), (false, true)] {
        let mut sum = account(one, vec![difference(more, 2)]);
        sum.add(&account(
            other,
            vec![difference(back, 5), difference(more, 3)],
        ));
        assert!(sum.is_shared_out);
        let expected = [difference(more, 5), difference(back, 5)];
        assert_eq!(sum.differences, expected);
    }
    let mut neither = account(false, Vec::new());
    neither.add(&account(false, Vec::new()));
    assert!(!neither.is_shared_out);
}

#[test]
fn accounts_of_several_trials_add_up() {
    let one = FakeDevice {
        denied: [[0, 10], [0, 0]],
        ..made()
    };
    let other = FakeDevice {
        denied: [[0, 5], [0, 20]],
        ..made()
    };
    let mut sum = one.account();
    sum.add(&other.account());
    assert_eq!(sum.lost_frames, 35);
    let expected = [place("p1", "denied", 20), place("p0", "denied", 15)];
    assert_eq!(sum.places, expected);
    let text = serde_json::to_string(&Accounted::Account(sum.clone())).unwrap();
    let read: Accounted = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Accounted::Account(sum));
}

#[test]
fn reasons_are_found_by_their_names() {
    for reason in LossReason::ALL {
        assert_eq!(LossReason::of_name(reason.name()), Some(reason));
    }
    assert_eq!(place("p0", "denied", 1).words(), "denied");
    let words: BTreeSet<&str> = LossReason::ALL.map(LossReason::words).into();
    assert_eq!(words.len(), LossReason::ALL.len());
    assert!(words.iter().all(|words| words.contains(' ')));
}

fn part() -> impl Strategy<Value = [[u64; 2]; 2]> {
    prop_oneof![
        Just([[0, 0], [0, 0]]),
        prop::array::uniform2(prop::array::uniform2(0u64..200)),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..100u64, Just(u64::MAX), any::<u64>()]
}

prop_compose! {
    fn counters()(
        numbers in prop::array::uniform8(number()),
        fails in prop::bool::weighted(0.1),
    ) -> DeviceCounts {
        let [a, b, c, d, e, f, g, h] = numbers;
        let port = |received, sent, early, late| {
            PortCounts { received, sent, drops: BTreeMap::new() }
                .with_drops(DropStage::BeforeReceipt, "rx_missed", early)
                .with_drops(DropStage::ToSend, "tx_full", late)
        };
        let mut counts = device(|index| if index == 0 { port(a, b, c, d) } else { port(e, f, g, h) });
        if fails {
            counts.elements.insert("V".to_owned(), Err("silent".to_owned()));
        }
        counts
    }
}

proptest! {
    #[test]
    fn losses_of_a_made_device_are_found_at_their_places(
        on_the_way_in in part(),
        denied in part(),
        silently in part(),
        full in part(),
        on_the_way_out in part(),
        refused in prop::array::uniform2(0u64..50),
    ) {
        let made = FakeDevice { on_the_way_in, denied, silently, full, on_the_way_out, refused, ..made() };
        let account = made.account();
        prop_assert!(account.differences.is_empty());
        prop_assert_eq!((account.tester_frames, account.unknown_frames), (0, 0));
        let before: u64 = [&on_the_way_in, &denied, &silently, &full, &on_the_way_out]
            .iter()
            .map(|of| of[0][0] + of[1][0])
            .sum();
        prop_assert_eq!(account.lost_before_frames, before);
        if before == 0 {
            prop_assert!(!account.is_shared_out);
            for (of, reason, out) in [
                (on_the_way_in, "not_received", false),
                (denied, "denied", false),
                (silently, "not_sent", true),
                (full, "tx_full", true),
                (on_the_way_out, "not_arrived", true),
            ] {
                for (from, lost) in of.iter().enumerate() {
                    let port = format!("p{}", if out { 1 - from } else { from });
                    let found = account.places.iter().find(|place| place.port == port && place.reason == reason);
                    prop_assert_eq!(found.map_or(0, |place| place.frames), lost[1]);
                }
            }
        }
    }

    #[test]
    fn loss_places_add_up_for_any_counters(
        before in counters(),
        after in counters(),
        lost in number(),
        ports in prop::collection::vec(prop::array::uniform8(number()), 1..3),
        stale in number(),
        missed in number(),
        is_mapped in any::<bool>(),
    ) {
        let mut result = TrialResult::of_counts(&trial(), 1.0, 1, 1, LatencySummary::default());
        result.lost_frames = lost;
        result.stale_frames = stale;
        result.health.missed_at_most_frames = missed;
        result.ports = ports
            .into_iter()
            .map(|[refused, damaged, misdirected, sent, sent_before, received, received_before, errors]| PortResult {
                refused_frames: refused,
                damaged_frames: damaged,
                misdirected_frames: misdirected,
                totals: PortTotals {
                    sent_frames: sent,
                    sent_before_frames: sent_before,
                    received_frames: received,
                    received_before_frames: received_before,
                    send_error_frames: errors,
                    receive_drop_frames: 1,
                },
                ..PortResult::default()
            })
            .collect();
        let mut layout = layout();
        if !is_mapped {
            layout.at_tester = vec![None; 2];
        }
        let account = account(&result, &layout, &before, &after).unwrap();
        let sum: u128 = account.places.iter().map(|place| u128::from(place.frames)).sum();
        let all = sum + u128::from(account.tester_frames) + u128::from(account.unknown_frames);
        prop_assert_eq!(all, u128::from(lost));
        prop_assert!(account.places.iter().all(|place| place.frames > 0));
    }
}
