// SPDX-License-Identifier: Apache-2.0
//! The tester's counting rules applied to the device's ledger: the expected figures of a result.
//!
//! - Lost frames are the offered frames that were not received. Damaged and misdirected frames are among them.
//! - A frame counts only at the port opposite to its sender. Elsewhere it is misdirected.
//! - A frame is damaged if a checksum over it is wrong. No checksum covers the Ethernet header. A frame without the magic number
//!   of the signature is foreign.
//! - A second copy is a duplicate if it is in the window of its flow, otherwise stale.
//! - A frame is reordered if it arrives after a later one of its flow (RFC 4737, section 3.3).
//! - Latency is that of the frames received, of duplicates that of the first undamaged copy within the window.

use serde::Serialize;

use super::ledger::Ledger;
use crate::narrow::whole;
use crate::trial::TrialResult;
use crate::validity::Validity;

/// A figure of a result with its expected value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Name of the figure, as in the result; `port 0 …` for a figure of one port.
    pub name: String,
    /// The smallest correct value.
    pub least: u64,
    /// The largest right value; none if there is no limit.
    pub most: Option<u64>,
    /// The tester's value.
    pub measured: u64,
}

impl Figure {
    pub(super) fn exact(name: impl Into<String>, expected: u64, measured: u64) -> Self {
        Self {
            name: name.into(),
            least: expected,
            most: Some(expected),
            measured,
        }
    }

    /// Returns true if the tester's value is correct.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.measured >= self.least && self.most.is_none_or(|most| self.measured <= most)
    }
}

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reasons")]
pub enum Verdict {
    /// All figures agree.
    Agrees,
    /// Figures differ; one sentence each.
    Differs(Vec<String>),
    /// The trial is inconclusive at this rate; one sentence for each reason.
    NotProven(Vec<String>),
}

/// Shortest traffic that the window of a flow holds, seconds.
const WINDOW_S: f64 = 0.1;
/// Largest difference between the clocks of tester and device, as a ratio. Each process measures the frequency of the time stamp counter
/// itself.
const CLOCK_RATIO: f64 = 1e-4;
/// Longest time of the fastest frame from the device to the tester, nanoseconds, in addition to the longest gap of the tester's loop.
const RETURN_NS: u64 = 1_000_000;
/// Largest share of the offered frames that the device may refuse. Above it, the load on the tester's receiver is not the rate of the
/// trial.
const REFUSED_RATIO_MAX: f64 = 0.01;
/// Shortest time between the device's last frame and the end of receiving, nanoseconds.
const DRAIN_SPARE_NS: u64 = 100_000_000;

/// Returns the figures of a result with the values expected from the ledger.
#[must_use]
pub(super) fn figures(ledger: &Ledger, result: &TrialResult) -> Vec<Figure> {
    let mut figures = of_ports(ledger, result);
    let received = ledger.sum(|tally| tally.forwarded);
    let offered = expected_offered(ledger, result).iter().sum::<u64>();
    let of_whole = [
        ("received_frames", received, result.received_frames),
        (
            "lost_frames",
            offered.saturating_sub(received),
            result.lost_frames,
        ),
        (
            "reordered_frames",
            ledger.sum(|tally| tally.reordered),
            result.reordered_frames,
        ),
        (
            "damaged_frames",
            ledger.sum(|tally| tally.damaged),
            result.damaged_frames,
        ),
        // The device creates no frames.
        ("phantom_frames", 0, result.health.phantom_frames),
        ("excess_frames", 0, result.health.excess_frames),
    ];
    let exact = |(name, expected, measured)| Figure::exact(name, expected, measured);
    figures.extend(of_whole.map(exact));
    figures.extend(of_copies(ledger, result));
    figures.extend(of_latency(ledger, result));
    figures
}

/// Returns the frames that each port offered: those that the device received, and those that its full ring refused.
fn expected_offered(ledger: &Ledger, result: &TrialResult) -> [u64; 2] {
    [0, 1].map(|port: usize| {
        let refused = result.ports.get(port).map_or(0, |port| port.refused_frames);
        let tally = ledger.directions.get(port);
        let received = tally.map_or(0, |tally| tally.received);
        received.saturating_add(refused)
    })
}

fn of_ports(ledger: &Ledger, result: &TrialResult) -> Vec<Figure> {
    let offered = expected_offered(ledger, result);
    let mut figures = Vec::new();
    for (index, (own, port)) in ledger.directions.iter().zip(&result.ports).enumerate() {
        // Two ports: frames sent on the other port arrive here.
        let Some(sent_here) = ledger.directions.get(index ^ 1) else {
            continue;
        };
        let of_port = [
            (
                "offered_frames",
                offered.get(index).copied().unwrap_or(0),
                port.offered_frames,
            ),
            ("received_frames", sent_here.forwarded, port.received_frames),
            ("damaged_frames", sent_here.damaged, port.damaged_frames),
            (
                "misdirected_frames",
                own.misdirected,
                port.misdirected_frames,
            ),
            (
                "foreign_frames",
                sent_here.unrecognisable,
                port.foreign_frames,
            ),
        ];
        figures.extend(of_port.map(|(name, expected, measured)| {
            Figure::exact(format!("port {index} {name}"), expected, measured)
        }));
    }
    figures
}

/// Returns the figures of copies. Copies are duplicates if they are certain to be in the window. Behind it, they are duplicates or stale.
fn of_copies(ledger: &Ledger, result: &TrialResult) -> Vec<Figure> {
    let copies = ledger.sum(|tally| tally.copies);
    let (duplicates, stale) = (result.duplicate_frames, result.stale_frames);
    let flows = ledger.directions.len() as f64 * f64::from(result.trial.flows);
    let window = whole(result.trial.offered_rate_pps / flows * WINDOW_S);
    let farthest = ledger
        .directions
        .iter()
        .map(|tally| tally.copy_distance_max);
    if farthest.max().unwrap_or(0) <= window {
        vec![
            Figure::exact("duplicate_frames", copies, duplicates),
            Figure::exact("stale_frames", 0, stale),
        ]
    } else {
        let name = "duplicate_frames and stale_frames";
        vec![Figure::exact(
            name,
            copies,
            duplicates.saturating_add(stale),
        )]
    }
}

/// Returns the figures of latency. No frame reaches the tester before the device sends it, and the fastest frame needs little longer.
fn of_latency(ledger: &Ledger, result: &TrialResult) -> Vec<Figure> {
    let latency = &result.latency;
    let least = |ns: u64| whole(ns as f64 * (1.0 - CLOCK_RATIO));
    let most = |ns: u64| whole(ns as f64 * (1.0 + CLOCK_RATIO));
    let min_ns = ledger.latency_min_ns();
    let figure = |name: &str, least, most, measured| Figure {
        name: name.to_owned(),
        least,
        most,
        measured,
    };
    let return_ns = RETURN_NS.saturating_add(result.health.longest_gap_ns);
    vec![
        Figure::exact(
            "latency samples",
            ledger.sum(|tally| tally.forwarded),
            latency.samples,
        ),
        figure(
            "latency min_ns",
            least(min_ns),
            Some(most(min_ns).saturating_add(return_ns)),
            latency.min_ns,
        ),
        figure(
            "latency mean_ns",
            least(ledger.latency_mean_ns()),
            None,
            whole(latency.mean_ns),
        ),
        figure(
            "latency max_ns",
            least(ledger.latency_max_ns()),
            None,
            latency.max_ns,
        ),
    ]
}

/// Returns the outcome of a trial.
#[must_use]
pub(super) fn verdict(ledger: &Ledger, result: &TrialResult, figures: &[Figure]) -> Verdict {
    // No fault of the tester's transmission explains these.
    let impossible = ["phantom_frames", "excess_frames"];
    let is_impossible = |figure: &Figure| impossible.contains(&figure.name.as_str());
    let different: Vec<&Figure> = figures.iter().filter(|figure| !figure.agrees()).collect();
    if different.iter().any(|figure| is_impossible(figure)) {
        return differs(&different);
    }
    if let Validity::Invalid(reasons) = &result.validity {
        return Verdict::NotProven(reasons.iter().map(ToString::to_string).collect());
    }
    let mut reasons = of_device(ledger);
    reasons.extend(of_end(ledger, result));
    if !reasons.is_empty() {
        return Verdict::NotProven(reasons);
    }
    if !different.is_empty() {
        return differs(&different);
    }
    let refused: u64 = result.ports.iter().map(|port| port.refused_frames).sum();
    if refused as f64 > result.offered_frames as f64 * REFUSED_RATIO_MAX {
        return Verdict::NotProven(vec![format!(
            "the device accepted only {:.1} % of the offered frames",
            100.0 - refused as f64 / result.offered_frames as f64 * 100.0
        )]);
    }
    Verdict::Agrees
}

fn differs(figures: &[&Figure]) -> Verdict {
    let sentence = |figure: &&Figure| {
        let expected = match figure.most {
            Some(most) if most == figure.least => most.to_string(),
            Some(most) => format!("{} to {most}", figure.least),
            None => format!("at least {}", figure.least),
        };
        format!(
            "{} is {}, expected {expected}",
            figure.name, figure.measured
        )
    };
    Verdict::Differs(figures.iter().map(sentence).collect())
}

/// Returns the reasons why the ledger is unusable.
fn of_device(ledger: &Ledger) -> Vec<String> {
    let directions = ledger.directions.iter().enumerate();
    let miscounted = directions.filter(|(_, tally)| tally.accounted() != tally.received);
    miscounted
        .map(|(port, tally)| {
            format!(
                "the device received {} frames from port {port} and accounts for {}",
                tally.received,
                tally.accounted()
            )
        })
        .collect()
}

/// Returns the reason why the tester may have missed the device's last frames.
fn of_end(ledger: &Ledger, result: &TrialResult) -> Option<String> {
    let trial = &result.trial;
    let receiving_ns = whole((trial.duration_s + trial.drain_s) * 1e9);
    let end_ns = result.started_unix_ns.saturating_add(receiving_ns);
    let last_ns = ledger.last_sent_unix_ns.saturating_add(DRAIN_SPARE_NS);
    (last_ns > end_ns).then(|| "the device sent frames after the end of receiving".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Tally;
    use super::*;
    use crate::latency::LatencySummary;
    use crate::self_test::case::Case;
    use crate::trial::PortResult;
    use crate::validity::InvalidCause;

    /// Returns a ledger with 1000 frames in each direction: 10 lost, 5 damaged, 1 without magic number, 4 misdirected, 20 copied, 7 reordered.
    fn ledger() -> Ledger {
        let tally = Tally {
            received: 1000,
            forwarded: 980,
            lost: 10,
            copies: 20,
            copy_distance_max: 2_500,
            reordered: 7,
            ethernet_changes: 2,
            damaged: 5,
            unrecognisable: 1,
            misdirected: 4,
            latency_min_ns: 1_000_000,
            latency_max_ns: 3_000_000,
            latency_sum_ns: 980 * 1_500_000,
            ..Tally::default()
        };
        Ledger {
            directions: [tally.clone(), tally],
            last_sent_unix_ns: 1_000_000_000,
        }
    }

    /// Returns the result of a tester that counts correctly. The device's ring refused 3 frames of each port.
    fn result() -> TrialResult {
        let trial = Case {
            rate_pps: 1e6,
            frame_size: 64,
            faults: Vec::new(),
        }
        .trial(1.0);
        let latency = LatencySummary {
            samples: 1960,
            min_ns: 1_004_000,
            mean_ns: 1_504_000.0,
            max_ns: 3_100_000,
            ..LatencySummary::default()
        };
        let mut result = TrialResult::of_counts(&trial, 1.0, 2006, 1960, latency);
        result.started_unix_ns = 500_000_000;
        result.duplicate_frames = 40;
        result.reordered_frames = 14;
        result.damaged_frames = 10;
        let port = PortResult {
            offered_frames: 1003,
            refused_frames: 3,
            received_frames: 980,
            damaged_frames: 5,
            foreign_frames: 1,
            misdirected_frames: 4,
            ..PortResult::default()
        };
        result.ports = vec![port.clone(), port];
        result
    }

    fn judged(ledger: &Ledger, result: &TrialResult) -> Verdict {
        verdict(ledger, result, &figures(ledger, result))
    }

    #[test]
    fn a_tester_that_counts_right_agrees() {
        assert_eq!(result().lost_frames, 46);
        assert_eq!(judged(&ledger(), &result()), Verdict::Agrees);
    }

    #[test]
    fn each_wrong_figure_differs() {
        type Change = fn(&mut TrialResult);
        let changes: [(Change, &str); 17] = [
            (|it| it.received_frames += 1, "received_frames is 1961"),
            (|it| it.lost_frames -= 1, "lost_frames is 45, expected 46"),
            (|it| it.duplicate_frames -= 1, "duplicate_frames is 39"),
            (|it| it.reordered_frames += 1, "reordered_frames is 15"),
            (|it| it.damaged_frames = 0, "damaged_frames is 0"),
            (|it| it.health.phantom_frames = 1, "phantom_frames is 1"),
            (|it| it.health.excess_frames = 2, "excess_frames is 2"),
            (
                |it| it.ports[0].offered_frames += 1,
                "port 0 offered_frames",
            ),
            (
                |it| it.ports[1].received_frames += 1,
                "port 1 received_frames",
            ),
            (
                |it| it.ports[0].damaged_frames += 1,
                "port 0 damaged_frames",
            ),
            (
                |it| it.ports[1].misdirected_frames = 0,
                "port 1 misdirected_frames",
            ),
            (|it| it.ports[0].foreign_frames = 0, "port 0 foreign_frames"),
            (|it| it.latency.samples += 8, "latency samples is 1968"),
            (|it| it.latency.min_ns = 999_000, "latency min_ns is 999000"),
            (
                |it| it.latency.min_ns = 3_000_000,
                "latency min_ns is 3000000",
            ),
            (
                |it| it.latency.mean_ns = 1_400_000.0,
                "latency mean_ns is 1400000, expected at least",
            ),
            (|it| it.latency.max_ns = 2_900_000, "latency max_ns"),
        ];
        for (change, words) in changes {
            let mut result = result();
            change(&mut result);
            let Verdict::Differs(differences) = judged(&ledger(), &result) else {
                panic!("{words}");
            };
            assert!(
                differences.iter().any(|text| text.contains(words)),
                "{words}: {differences:?}"
            );
        }
    }

    #[test]
    fn copies_behind_the_window_are_duplicates_or_stale() {
        let mut result = result();
        result.trial.offered_rate_pps = 1e4;
        assert_eq!(judged(&ledger(), &result), Verdict::Agrees);
        result.duplicate_frames = 41;
        assert!(matches!(judged(&ledger(), &result), Verdict::Differs(_)));
    }

    #[test]
    fn cases_that_prove_nothing_do_not_pass() {
        let not_proven = |ledger: &Ledger, result: &TrialResult, words: &str| {
            let Verdict::NotProven(reasons) = judged(ledger, result) else {
                panic!("{words}");
            };
            assert!(reasons.iter().any(|it| it.contains(words)), "{reasons:?}");
        };
        // An invalid trial is inconclusive whatever its figures are.
        let mut invalid = result();
        invalid.validity = Validity::Invalid(vec![
            InvalidCause::RateMissed.because("the rate was missed"),
        ]);
        invalid.reordered_frames = 0;
        not_proven(&ledger(), &invalid, "the rate was missed");
        // A missed rate does not explain these figures.
        invalid.health.phantom_frames = 1;
        assert!(matches!(judged(&ledger(), &invalid), Verdict::Differs(_)));

        let mut late = ledger();
        late.last_sent_unix_ns = 3_000_000_000;
        not_proven(&late, &result(), "after the end of receiving");
        let mut wrong = ledger();
        wrong.directions[1].forwarded -= 1;
        not_proven(&wrong, &result(), "from port 1 and accounts for 999");

        let mut refused = result();
        refused.offered_frames += 2000;
        refused.lost_frames += 2000;
        for port in &mut refused.ports {
            port.offered_frames += 1000;
            port.refused_frames += 1000;
        }
        not_proven(&ledger(), &refused, "accepted only 49.9 %");
        // A wrong figure is wrong at any load.
        refused.lost_frames -= 1;
        assert!(matches!(judged(&ledger(), &refused), Verdict::Differs(_)));
    }
}
