// SPDX-License-Identifier: Apache-2.0
//! Studies as Prometheus metrics. Stores that cannot be read have none.

use quietwire_base::metrics::{Labels, Metric, MetricsText};

use crate::stores::{LatestTrial, StoreList, StoreProgress};

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// Renders the metrics of all listed stores, and the number of others.
pub(crate) fn exposition(list: &StoreList) -> String {
    let mut text = MetricsText::default();
    text.add_counts(
        Metric::StudyStoresNotListed,
        [(Labels::new(), list.not_listed as u64)],
    );
    let all = || {
        let readable = list.studies.iter();
        readable.filter_map(|store| Some((store.name.as_str(), store.progress.as_ref()?)))
    };
    let info = all().map(|(store, progress)| {
        let mut labels = of_store(store);
        labels.push(("study", progress.study.clone()));
        labels.push(("state", progress.state.to_owned()));
        (labels, 1)
    });
    text.add_counts(Metric::StudyInfo, info);
    for (metric, of) in [
        (
            Metric::StudyFinishedSteps,
            (|progress| progress.finished_steps) as fn(&StoreProgress) -> usize,
        ),
        (Metric::StudyPlannedSteps, |progress| progress.planned_steps),
        (Metric::StudyTrialsTotal, |progress| progress.trials),
        (Metric::StudyInvalidTrialsTotal, |progress| {
            progress.invalid_trials
        }),
    ] {
        let samples = all().map(|(store, progress)| (of_store(store), of(progress) as u64));
        text.add_counts(metric, samples);
    }
    let latest = || all().filter_map(|(store, progress)| Some((store, progress.latest.as_ref()?)));
    text.add(
        Metric::StudyLatestTrialTimestampSeconds,
        latest().map(|(store, trial)| (of_store(store), trial.stored_unix_ns as f64 / SECOND_NS)),
    );
    text.add(
        Metric::StudyLatestOfferedFramesPerSecond,
        latest().map(|(store, trial)| (of_trial(store, trial), trial.offered_rate_pps)),
    );
    // The loss of an invalid trial is unknown.
    let valid = latest().filter(|(_, trial)| trial.is_valid);
    text.add(
        Metric::StudyLatestLossRatio,
        valid.map(|(store, trial)| (of_trial(store, trial), trial.loss_ratio)),
    );
    text.finish()
}

fn of_store(store: &str) -> Labels {
    vec![("store", store.to_owned())]
}

fn of_trial(store: &str, trial: &LatestTrial) -> Labels {
    let mut labels = of_store(store);
    labels.push(("case", trial.case.clone()));
    labels.push(("frame_size", trial.frame_size.clone()));
    labels.push(("step", trial.step.clone()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::StoreEntry;

    fn entry(name: &str, latest: Option<LatestTrial>) -> StoreEntry {
        StoreEntry {
            name: name.to_owned(),
            progress: Some(StoreProgress {
                study: "s".to_owned(),
                title: "T".to_owned(),
                started_unix_ns: 1,
                state: "unfinished",
                finished_steps: 3,
                planned_steps: 8,
                trials: 40,
                invalid_trials: 2,
                latest,
            }),
            error: None,
        }
    }

    #[test]
    fn every_metric_of_studies_is_exported() {
        let trial = |is_valid| LatestTrial {
            case: "quiet".to_owned(),
            frame_size: "64".to_owned(),
            step: "search".to_owned(),
            offered_rate_pps: 2e6,
            loss_ratio: 0.25,
            is_valid,
            stored_unix_ns: 1_500_000_000,
        };
        let unreadable = StoreEntry {
            name: "d.sqlite".to_owned(),
            progress: None,
            error: Some("no store".to_owned()),
        };
        let list = StoreList {
            studies: vec![
                entry("a.sqlite", Some(trial(true))),
                entry("b.sqlite", None),
                entry("c.sqlite", Some(trial(false))),
                unreadable,
            ],
            not_listed: 7,
        };
        let text = exposition(&list);
        let labels = "case=\"quiet\",frame_size=\"64\",step=\"search\"";
        for line in [
            "quietwire_study_stores_not_listed 7".to_owned(),
            "quietwire_study_info{store=\"a.sqlite\",study=\"s\",state=\"unfinished\"} 1"
                .to_owned(),
            "quietwire_study_finished_steps{store=\"b.sqlite\"} 3".to_owned(),
            "quietwire_study_planned_steps{store=\"a.sqlite\"} 8".to_owned(),
            "quietwire_study_trials_total{store=\"a.sqlite\"} 40".to_owned(),
            "quietwire_study_invalid_trials_total{store=\"a.sqlite\"} 2".to_owned(),
            "quietwire_study_latest_trial_timestamp_seconds{store=\"a.sqlite\"} 1.5".to_owned(),
            format!(
                "quietwire_study_latest_offered_frames_per_second{{store=\"c.sqlite\",{labels}}} 2000000"
            ),
            format!("quietwire_study_latest_loss_ratio{{store=\"a.sqlite\",{labels}}} 0.25"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!text.contains("d.sqlite"), "{text}");
        assert!(
            !text.contains("latest_loss_ratio{store=\"c.sqlite\""),
            "{text}"
        );
        let heads = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
        let names = Metric::ALL.iter().map(|metric| metric.name());
        let own = names.filter(|name| name.starts_with("quietwire_study_"));
        assert!(heads.eq(own), "{text}");
    }
}
