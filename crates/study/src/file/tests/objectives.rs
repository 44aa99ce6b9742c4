// SPDX-License-Identifier: Apache-2.0
//! Objectives in study files.

use super::{SMALL, parse};
use crate::file::{Point, Quantity, Unit};
use crate::verdict::Direction;

fn with(objective: &str) -> String {
    format!("{SMALL}\n[[objective]]\n{objective}")
}

const RATE: &str = "quantity = \"NDR\"\ncase = \"noisy\"\n";

#[test]
fn an_objective_has_quantity_case_and_bound() {
    let file = parse(&with(
        "quantity = \"latency\"\ncase = \"noisy\"\npercentile = 99.9\nat-most-us = 20\n\
         [[objective]]\nquantity = \"PDR\"\ncase = \"noisy\"\nagainst = \"quiet\"\nat-least-ratio = 0.98\nconfidence = 0.9\n",
    ))
    .unwrap();
    let [latency, rate] = &file.objectives[..] else {
        panic!("{:?}", file.objectives);
    };
    assert_eq!(latency.measure().point, Point::Percentile(99.9));
    assert_eq!(latency.measure().to_string(), "p99.9 latency");
    let rule = latency.rule().unwrap();
    assert_eq!((rule.direction, rule.bound), (Direction::AtMost, 20e3));
    assert!((rule.error_rate - 0.05).abs() < 1e-12);
    assert_eq!(latency.unit(), Unit::Nanoseconds);
    assert_eq!(rate.quantity, Quantity::Rate("PDR".to_owned()));
    assert_eq!(rate.unit(), Unit::Ratio);
    assert!((rate.rule().unwrap().error_rate - 0.1).abs() < 1e-12);
    // Written and read again, it is the same.
    let again = parse(&toml::to_string(&file).unwrap()).unwrap();
    assert_eq!(again, file);
}

#[test]
fn losses_are_bounded_by_those_of_another_case_or_a_baseline() {
    let file = parse(&with(
        "quantity = \"loss\"\nload-percent = 50\ncase = \"noisy\"\nagainst = \"quiet\"\nat-most-ratio = 2\n\
         [[objective]]\nquantity = \"loss\"\nload-percent = 50\ncase = \"noisy\"\nbaseline = \"before.sqlite\"\nat-most-ratio = 1\n",
    ))
    .unwrap();
    for (objective, bound) in file.objectives.iter().zip([2.0, 1.0]) {
        let rule = objective.rule().unwrap();
        assert_eq!((rule.direction, rule.bound), (Direction::AtMost, bound));
        assert_eq!(objective.unit(), Unit::Ratio);
        assert_eq!(objective.measure().to_string(), "loss at 50 % load");
    }
}

#[test]
fn a_quick_study_keeps_its_objectives() {
    let file = parse(&with(
        "quantity = \"loss\"\nload-percent = 50\ncase = \"noisy\"\nat-most-loss-ratio = 0\n",
    ))
    .unwrap();
    let quick = parse(&file.quick().unwrap()).unwrap();
    assert_eq!(quick.objectives, file.objectives);
}

#[test]
fn invalid_objectives_are_reported_with_line_and_key() {
    let first = SMALL.lines().count() + 2;
    let refused = |objective: &str, at: usize, key: &str, says: &str| {
        let message = parse(&with(objective)).unwrap_err().to_string();
        let place = format!("a/study.toml:{}:", first + at);
        assert!(message.starts_with(&place), "{message}\nis not at {place}");
        let named = format!(": objective[0].{key}: ");
        assert!(message.contains(&named), "{message}\ndoes not name {key}");
        assert!(message.contains(says), "{message}\ndoes not say {says}");
    };
    let rate = |more: &str| format!("{RATE}{more}\n");
    let latency = |more: &str| format!("quantity = \"latency\"\ncase = \"noisy\"\n{more}\n");
    refused(&rate(""), 1, "quantity", "no bound");
    refused(
        &rate("at-least-pps = 1\nagainst = \"quiet\"\nat-least-ratio = 0.9"),
        5,
        "at-least-ratio",
        "two bounds",
    );
    refused(
        &rate("at-most-us = 5"),
        3,
        "at-most-us",
        "does not apply to NDR",
    );
    refused(&rate("at-least-pps = 0"), 3, "at-least-pps", "above 0");
    refused(&rate("at-least-pps = nan"), 3, "at-least-pps", "above 0");
    refused(
        &rate("at-least-ratio = 0.9"),
        1,
        "quantity",
        "refers to nothing",
    );
    refused(
        &rate("against = \"noisy\"\nat-least-ratio = 0.9"),
        3,
        "against",
        "with itself",
    );
    refused(
        &rate("against = \"loud\"\nat-least-ratio = 0.9"),
        3,
        "against",
        "unknown case 'loud'",
    );
    refused(
        &rate("against = \"quiet\"\nat-least-pps = 5"),
        3,
        "against",
        "absolute bound",
    );
    refused(
        "quantity = \"NDR\"\ncase = \"loud\"\nat-least-pps = 5\n",
        2,
        "case",
        "unknown case",
    );
    refused(
        "quantity = \"MDR\"\ncase = \"noisy\"\nat-least-pps = 5\n",
        1,
        "quantity",
        "available: NDR, PDR, loss, latency",
    );
    refused(
        &rate("at-least-pps = 5\npercentile = 99"),
        4,
        "percentile",
        "no percentiles",
    );
    refused(
        &rate("at-least-pps = 5\nload = \"NDR\""),
        4,
        "load",
        "latency and delay variation",
    );
    refused(
        &rate("at-least-pps = 5\nload-percent = 50"),
        4,
        "load-percent",
        "loss only",
    );
    refused(
        &rate("at-least-pps = 5\nconfidence = 1"),
        4,
        "confidence",
        "must be 0.5",
    );
    refused(
        &rate("at-least-pps = 5\nframe-size = 128"),
        4,
        "frame-size",
        "not one of",
    );
    refused(
        &latency("percentile = 98\nat-most-us = 5"),
        3,
        "percentile",
        "use 50, 90, 99",
    );
    refused(
        &latency("load = \"NDR\"\nat-most-us = 5"),
        1,
        "quantity",
        "[latency-plan]",
    );
    let of = |quantity: &str, more: &str| {
        format!("quantity = \"{quantity}\"\ncase = \"noisy\"\n{more}\n")
    };
    refused(&of("ipdv", "at-most-us = 5"), 1, "quantity", "near zero");
    refused(
        &of("loss", "at-most-loss-ratio = 0"),
        1,
        "quantity",
        "load is missing",
    );
    refused(
        &of("loss", "load-percent = 70\nat-most-loss-ratio = 0"),
        3,
        "load-percent",
        "loads-percent in [sweep]",
    );
    refused(
        &of("loss", "load-percent = 50\nat-most-loss-ratio = 2"),
        4,
        "at-most-loss-ratio",
        "0 to 1",
    );
    refused(
        &of("loss", "load-percent = 50\nat-most-ratio = 2"),
        1,
        "quantity",
        "refers to nothing",
    );
    refused(
        &of(
            "loss",
            "load-percent = 50\nagainst = \"quiet\"\nat-least-ratio = 0.5",
        ),
        5,
        "at-least-ratio",
        "use at-most-loss-ratio or at-most-ratio",
    );
    refused(&of("reset", "at-most-s = 5"), 1, "quantity", "[reset]");
    refused(
        &of("system-recovery", "at-most-s = 5"),
        1,
        "quantity",
        "[system-recovery]",
    );
    refused(
        &of("connections-per-second", "at-least = 5"),
        1,
        "quantity",
        "[connections-per-second]",
    );
    refused(
        &of("concurrent-connections", "at-least-pps = 5"),
        3,
        "at-least-pps",
        "use at-least or at-least-ratio",
    );
    let message = parse(&with(&rate("bound = 5"))).unwrap_err().to_string();
    assert!(message.contains("unknown field `bound`"), "{message}");
}
