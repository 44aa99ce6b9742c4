// SPDX-License-Identifier: Apache-2.0
//! Every trial as a line of a table in CSV (RFC 4180), for spreadsheets and scripts.

use quietwire_search::procedure::{Action, ConversationLoad, ConversationTrial, Observation};
use quietwire_study::{ActionRecord, StepRecord, StudyResults, TrialRecord};

/// Names of the columns.
const HEADER: [&str; 25] = [
    "trial",
    "round",
    "case",
    "frame_size",
    "step",
    "is_valid",
    "invalid_because",
    "intended_rate_pps",
    "achieved_rate_pps",
    "forwarding_rate_pps",
    "duration_s",
    "offered_frames",
    "received_frames",
    "lost_frames",
    "loss_ratio",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p99_9_ns",
    "latency_p99_99_ns",
    "latency_max_ns",
    "tester_latency_mean_ns",
    "pdv_p99_ns",
];

/// Names of the columns that only trials with connections have. Their latency is that of transactions.
const OF_CONNECTIONS: [&str; 8] = [
    "load",
    "load_value",
    "attempted",
    "failed",
    "open_largest",
    "connections_per_s",
    "transactions_per_s",
    "received_bps",
];

/// Returns all trials, in the order of the store: those with frames, then those with connections. The first line names the columns. A value
/// that is unknown, or that a trial does not have, is empty.
#[must_use]
pub fn csv(results: &StudyResults) -> String {
    let names = HEADER.iter().chain(&OF_CONNECTIONS);
    let mut text = line(names.map(|name| (*name).to_owned()));
    let mut count = 0_usize;
    for (index, (step, trial)) in results.trials().enumerate() {
        let without = OF_CONNECTIONS.map(|_| String::new());
        text.push_str(&line(row(index, step, trial).into_iter().chain(without)));
        count = index.saturating_add(1);
    }
    let steps = results.steps.iter();
    let actions = steps.flat_map(|step| step.actions.iter().map(move |action| (step, action)));
    let trials = actions.filter_map(|(step, action)| match &action.action {
        Action::Converse(trial) => Some((step, action, trial)),
        _ => None,
    });
    for (index, (step, action, trial)) in trials.enumerate() {
        let cells = row_of_connections(count.saturating_add(index), step, action, trial);
        text.push_str(&line(cells.into_iter()));
    }
    text
}

/// Returns the name of a load.
fn load_name(load: &ConversationLoad) -> &'static str {
    match load {
        ConversationLoad::Connections { .. } => "connections per second",
        ConversationLoad::Open { .. } => "open connections",
        ConversationLoad::Transactions { .. } => "transactions per second",
        ConversationLoad::Transfer { .. } => "transfers on connections",
    }
}

fn row_of_connections(
    index: usize,
    step: &StepRecord,
    action: &ActionRecord,
    trial: &ConversationTrial,
) -> Vec<String> {
    let counts = match &action.observation {
        Observation::Conversed(counts) => Some(counts),
        _ => None,
    };
    let reason = match &action.observation {
        Observation::Invalid { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    let times = counts.and_then(|counts| counts.last_octet);
    let some = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let of = |name: &str| match name {
        "trial" => index.saturating_add(1).to_string(),
        "round" => step.round.saturating_add(1).to_string(),
        "case" => step.case_name.clone(),
        "step" => step.kind.to_string(),
        "is_valid" => counts.is_some().to_string(),
        "invalid_because" => reason.clone(),
        "duration_s" => trial.duration_s.to_string(),
        "latency_min_ns" => some(times.map(|it| it.min_ns)),
        "latency_mean_ns" => times.map_or_else(String::new, |it| it.mean_ns.to_string()),
        "latency_p50_ns" => some(times.and_then(|it| it.p50_ns)),
        "latency_p90_ns" => some(times.and_then(|it| it.p90_ns)),
        "latency_p99_ns" => some(times.and_then(|it| it.p99_ns)),
        "latency_p99_9_ns" => some(times.and_then(|it| it.p99_9_ns)),
        "latency_max_ns" => some(times.map(|it| it.max_ns)),
        "load" => load_name(&trial.load).to_owned(),
        "load_value" => trial.load.value().to_string(),
        "attempted" => some(counts.map(|it| it.attempted)),
        "failed" => some(counts.map(|it| it.failed)),
        "open_largest" => some(counts.map(|it| it.open_largest)),
        "connections_per_s" => {
            counts.map_or_else(String::new, |it| it.connections_per_s.to_string())
        }
        "transactions_per_s" => {
            counts.map_or_else(String::new, |it| it.transactions_per_s.to_string())
        }
        "received_bps" => counts.map_or_else(String::new, |it| it.received_bps.to_string()),
        _ => String::new(),
    };
    let names = HEADER.iter().chain(&OF_CONNECTIONS);
    names.map(|name| of(name)).collect()
}

fn row(index: usize, step: &StepRecord, trial: &TrialRecord) -> [String; HEADER.len()] {
    let result = &trial.result;
    let latency = &result.latency;
    let known = |value: String| {
        if latency.samples > 0 {
            value
        } else {
            String::new()
        }
    };
    let some = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let own = result
        .calibration
        .as_ref()
        .and_then(|cited| cited.own.as_ref());
    [
        index.saturating_add(1).to_string(),
        step.round.saturating_add(1).to_string(),
        step.case_name.clone(),
        step.frame_size.to_string(),
        step.kind.to_string(),
        result.is_valid().to_string(),
        result.validity.text().unwrap_or_default(),
        trial.request.offered_rate_pps.to_string(),
        result.achieved_rate_pps.to_string(),
        result.forwarding_rate_pps.to_string(),
        result.elapsed_s.to_string(),
        result.offered_frames.to_string(),
        result.received_frames.to_string(),
        result.lost_frames.to_string(),
        result.loss_ratio.to_string(),
        known(latency.min_ns.to_string()),
        known(latency.mean_ns.to_string()),
        some(latency.p50_ns),
        some(latency.p90_ns),
        some(latency.p99_ns),
        some(latency.p99_9_ns),
        some(latency.p99_99_ns),
        known(latency.max_ns.to_string()),
        own.map_or_else(String::new, |own| own.mean_ns.to_string()),
        some(result.variation.pdv.p99_ns),
    ]
}

/// Returns a line with its end.
pub(crate) fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    format!("{}\r\n", cells.join(","))
}

/// Quotes a cell that contains a separator, a quotation mark or an end of line.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use quietwire_search::procedure::{ConversationCounts, TimeSummary};
    use quietwire_study::{FrameSize, StepKind, TrialActivity};

    use super::*;

    #[test]
    fn trials_with_connections_are_lines_with_their_own_columns() {
        let trial = ConversationTrial {
            load: ConversationLoad::Connections { per_s: 20_000.0 },
            duration_s: 1.0,
            pause_s: 0.0,
            answer: None,
        };
        let mut action = ActionRecord {
            sequence: 0,
            run: 0,
            stored_unix_ns: 0,
            action: Action::Converse(trial),
            observation: Observation::Conversed(Box::new(ConversationCounts {
                attempted: 20_000,
                failed: 3,
                connections_per_s: 19_997.0,
                last_octet: Some(TimeSummary {
                    samples: 19_997,
                    max_ns: 700,
                    ..TimeSummary::default()
                }),
                ..ConversationCounts::default()
            })),
            activity: TrialActivity::default(),
        };
        let step = StepRecord {
            id: 1,
            round: 0,
            case_name: "only".to_owned(),
            frame_size: FrameSize::default(),
            kind: StepKind::ConnectionsPerSecond,
            is_finished: true,
            findings: None,
            procedure: None,
            application: None,
            actions: Vec::new(),
            trials: Vec::new(),
        };
        let cell = |cells: &[String], name: &str| {
            let mut names = HEADER.iter().chain(&OF_CONNECTIONS);
            let place = names.position(|one| *one == name).unwrap();
            cells[place].clone()
        };
        let cells = row_of_connections(4, &step, &action, &trial);
        assert_eq!(cells.len(), HEADER.len() + OF_CONNECTIONS.len());
        for (name, expected) in [
            ("trial", "5"),
            ("step", "connections per second"),
            ("is_valid", "true"),
            ("load_value", "20000"),
            ("failed", "3"),
            ("connections_per_s", "19997"),
            ("latency_max_ns", "700"),
            ("latency_p50_ns", ""),
            ("achieved_rate_pps", ""),
            ("frame_size", ""),
        ] {
            assert_eq!(cell(&cells, name), expected, "{name}");
        }
        action.observation = Observation::Invalid {
            reason: "the tester stalled".to_owned(),
            achieved_per_s: None,
        };
        let cells = row_of_connections(0, &step, &action, &trial);
        assert_eq!(cell(&cells, "is_valid"), "false");
        assert_eq!(cell(&cells, "invalid_because"), "the tester stalled");
        assert_eq!(cell(&cells, "failed"), "");
    }

    #[test]
    fn cells_with_separators_are_quoted() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a, \"b\"\nc"), "\"a, \"\"b\"\"\nc\"");
        let cells = ["x", "1,5", ""].map(str::to_owned);
        assert_eq!(line(cells.into_iter()), "x,\"1,5\",\r\n");
    }
}
