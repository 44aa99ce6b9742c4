// SPDX-License-Identifier: Apache-2.0
//! The list of metrics follows Prometheus' conventions, and every text that names metrics names existing ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

/// Parts of quietwire that export metrics.
const PARTS: [&str; 3] = ["switch", "partition", "study"];
/// Labels that Prometheus adds to all samples of a target.
const OF_TARGET: [&str; 2] = ["instance", "job"];
/// Keywords of PromQL before a list of labels.
const GROUPINGS: [&str; 4] = [" by (", " without (", " on (", " group_left ("];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn names_follow_the_conventions() {
    let names: BTreeSet<&str> = Metric::ALL.iter().map(|one| one.name()).collect();
    assert_eq!(names.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        let name = metric.name();
        let parts = PARTS.iter();
        let own = parts.filter(|part| name.starts_with(&format!("quietwire_{part}_")));
        assert_eq!(own.count(), 1, "{name}");
        let is_counter = metric.kind() == MetricKind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        for word in metric.labels().iter().chain([&name]) {
            let is_letter = |octet: u8| octet.is_ascii_lowercase() || octet == b'_';
            assert!(word.bytes().all(is_letter), "{name}: {word}");
        }
        assert!(metric.help().ends_with('.'), "{name}");
    }
}

#[test]
fn samples_have_their_labels_and_histograms_count_up() {
    let mut text = MetricsText::default();
    let port = |name: &str| vec![("port", name.to_owned())];
    text.add_counts(
        Metric::SwitchPortReceiveFramesTotal,
        [(port("a\"b\\c\nd"), 7), (port("e"), 0)],
    );
    text.add(Metric::SwitchUptimeSeconds, [(vec![], 1.5)]);
    let queue = vec![("port", "a".to_owned()), ("queue", "0".to_owned())];
    let histogram = Histogram {
        buckets: vec![(1, 4), (2, 3)],
        sum: 12,
    };
    text.add_histograms(Metric::SwitchQueueBurstFrames, [(queue, histogram)]);
    let wanted = "# HELP quietwire_switch_port_receive_frames_total Frames received.\n\
         # TYPE quietwire_switch_port_receive_frames_total counter\n\
         quietwire_switch_port_receive_frames_total{port=\"a\\\"b\\\\c\\nd\"} 7\n\
         quietwire_switch_port_receive_frames_total{port=\"e\"} 0\n\
         # HELP quietwire_switch_uptime_seconds Time since the switch started.\n\
         # TYPE quietwire_switch_uptime_seconds gauge\n\
         quietwire_switch_uptime_seconds 1.5\n\
         # HELP quietwire_switch_queue_burst_frames Frames per non-empty poll of a queue.\n\
         # TYPE quietwire_switch_queue_burst_frames histogram\n\
         quietwire_switch_queue_burst_frames_bucket{port=\"a\",queue=\"0\",le=\"1\"} 4\n\
         quietwire_switch_queue_burst_frames_bucket{port=\"a\",queue=\"0\",le=\"2\"} 7\n\
         quietwire_switch_queue_burst_frames_bucket{port=\"a\",queue=\"0\",le=\"+Inf\"} 7\n\
         quietwire_switch_queue_burst_frames_sum{port=\"a\",queue=\"0\"} 12\n\
         quietwire_switch_queue_burst_frames_count{port=\"a\",queue=\"0\"} 7\n";
    assert_eq!(text.finish(), wanted);
}

/// Returns the metric of a name in an expression, and whether it is the name of a histogram's buckets.
fn named(name: &str) -> Option<(Metric, bool)> {
    let of = |name: &str, is_histogram: bool| {
        let mut all = Metric::ALL.iter().copied();
        all.find(|metric| {
            metric.name() == name && (metric.kind() == MetricKind::Histogram) == is_histogram
        })
    };
    let part = |suffix: &str| of(name.strip_suffix(suffix)?, true);
    let bucket = part("_bucket").map(|metric| (metric, true));
    let whole = of(name, false)
        .or_else(|| part("_sum"))
        .or_else(|| part("_count"));
    bucket.or(whole.map(|metric| (metric, false)))
}

/// Returns the words of a list between commas, each without what follows an operator or a blank: the labels in `{a="b", c=~"d"}`.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .filter_map(|part| part.trim().split(['=', '!', ' ']).next())
        .filter(|word| !word.is_empty())
}

/// Checks an expression in PromQL: its metrics exist, and its matchers and groupings use their labels. Returns all labels of its metrics.
fn checked(place: &str, expression: &str) -> BTreeSet<&'static str> {
    let mut labels = BTreeSet::from(OF_TARGET);
    let mut metrics = 0;
    for (at, _) in expression.match_indices("quietwire_") {
        let rest = &expression[at..];
        let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let Some((metric, is_bucket)) = named(name) else {
            panic!("{place}: no metric has the name {name}");
        };
        let mut own = BTreeSet::from(OF_TARGET);
        own.extend(metric.labels());
        own.extend(is_bucket.then_some("le"));
        if let Some(matchers) = after.strip_prefix('{') {
            let (matchers, _) = matchers.split_once('}').unwrap();
            for label in words(matchers) {
                assert!(own.contains(label), "{place}: {name} has no label {label}");
            }
        }
        labels.append(&mut own);
        metrics += 1;
    }
    assert!(metrics > 0, "{place}: no metric in {expression}");
    for grouping in GROUPINGS {
        for (at, _) in expression.match_indices(grouping) {
            let (list, _) = expression[at + grouping.len()..].split_once(')').unwrap();
            for label in words(list) {
                assert!(
                    labels.contains(label),
                    "{place}: no label {label} in {expression}"
                );
            }
        }
    }
    labels
}

/// Checks that a template uses existing labels, each between `open` and `}}`.
fn check_template(place: &str, template: &str, open: &str, labels: &BTreeSet<&str>) {
    for (at, _) in template.match_indices(open) {
        let (label, _) = template[at + open.len()..].split_once("}}").unwrap();
        assert!(labels.contains(label.trim()), "{place}: no label {label}");
    }
}

#[test]
fn the_dashboard_uses_existing_metrics_and_labels() {
    let dashboard: Value =
        serde_json::from_str(&text_of("packaging/monitoring/dashboard.json")).unwrap();
    let mut used = String::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let labels = checked(title, expression);
            let legend = target["legendFormat"].as_str().unwrap();
            check_template(title, legend, "{{", &labels);
            used.push_str(expression);
        }
    }
    for part in PARTS {
        assert!(used.contains(&format!("quietwire_{part}_")), "{part}");
    }
}

#[test]
fn every_alert_uses_existing_metrics_and_has_a_line_in_the_guide() {
    let rules = text_of("packaging/monitoring/alerts.yaml");
    let guide = text_of("docs/metrics.md");
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    let mut names = BTreeSet::new();
    for alert in &alerts {
        let name = alert.lines().next().unwrap().trim();
        assert!(names.insert(name), "{name} twice");
        let expressions = alert
            .lines()
            .filter_map(|line| line.trim().strip_prefix("expr: "));
        let expressions: Vec<&str> = expressions.collect();
        assert_eq!(expressions.len(), 1, "{name}");
        let labels = checked(name, expressions[0]);
        check_template(name, alert, "{{ $labels.", &labels);
        let row = format!("| `{name}` |");
        assert!(guide.contains(&row), "docs/metrics.md has no {name}");
    }
    let tests = text_of("packaging/monitoring/alerts-test.yaml");
    let tested: BTreeSet<&str> = tests
        .lines()
        .filter_map(|line| line.trim().strip_prefix("alertname: "))
        .collect();
    assert_eq!(tested, names);
    let in_guide = guide.matches("| `Quietwire").count();
    assert_eq!(in_guide, names.len());
}

#[test]
fn the_guide_lists_every_metric() {
    let guide = text_of("docs/metrics.md");
    for metric in Metric::ALL {
        let labels: Vec<String> = metric
            .labels()
            .iter()
            .map(|one| format!("`{one}`"))
            .collect();
        let row = format!(
            "| `{}` | {} | {} | {} |",
            metric.name(),
            metric.kind().name(),
            labels.join(", "),
            metric.help()
        );
        assert!(guide.contains(&row), "docs/metrics.md lacks: {row}");
    }
    let rows = guide.matches("\n| `quietwire_").count();
    assert_eq!(rows, Metric::ALL.len());
}
