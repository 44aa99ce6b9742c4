// SPDX-License-Identifier: Apache-2.0
//! Checks of objectives.

use quietwire_tester::PERCENTILES;

use super::super::limits::{Checked, fault};
use super::super::locate::At::{self, Index, Key};
use super::super::objective::{Objective, Quantity, Unit};
use super::super::study_file::StudyFile;

/// Range of the confidence of a verdict.
const CONFIDENCE: [f64; 2] = [0.5, 0.999_999];

/// Checks that every objective has one bound that fits its quantity, and that the study measures it.
pub(super) fn objectives(file: &StudyFile) -> Checked {
    for (index, objective) in file.objectives.iter().enumerate() {
        let at = |key| [Key("objective"), Index(index), Key(key)];
        of_cases(file, objective, at)?;
        bound(objective, at)?;
        reference(objective, at)?;
        selection(objective, at)?;
        confidence(objective, at)?;
        // A shortened study has fewer loads and sizes, and its results are not judged.
        if !file.quick {
            measured(file, objective, at)?;
        }
    }
    Ok(())
}

/// Path of a key of an objective.
type Path = [At; 3];

fn of_cases(file: &StudyFile, objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    let is_known = |name: &String| file.cases.iter().any(|case| case.name == *name);
    if !is_known(&objective.case) {
        return fault(&at("case"), format!("unknown case '{}'", objective.case));
    }
    // Cases of a baseline are those of its own study.
    match &objective.against {
        Some(name) if objective.baseline.is_none() && !is_known(name) => {
            fault(&at("against"), format!("unknown case '{name}'"))
        }
        _ => Ok(()),
    }
}

fn bound(objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    let fitting = keys(&objective.quantity);
    let bounds = objective.bounds();
    for (key, _, bound) in &bounds {
        if !fitting.contains(key) {
            return fault(
                &at(key),
                format!(
                    "this key does not apply to {} (use {})",
                    objective.quantity,
                    fitting.join(" or ")
                ),
            );
        }
        let may_be_zero = matches!(*key, "at-most-loss-ratio" | "at-most-us" | "at-most-s");
        let is_ratio_of_loss = *key == "at-most-loss-ratio" && *bound > 1.0;
        if !bound.is_finite() || *bound < 0.0 || (*bound == 0.0 && !may_be_zero) || is_ratio_of_loss
        {
            return fault(
                &at(key),
                match (may_be_zero, is_ratio_of_loss) {
                    (_, true) => "a loss ratio must be 0 to 1".to_owned(),
                    (true, _) => "the bound must not be negative".to_owned(),
                    (false, _) => "the bound must be above 0".to_owned(),
                },
            );
        }
    }
    match &bounds[..] {
        [_] => Ok(()),
        [] => fault(
            &at("quantity"),
            format!("the objective has no bound (add {})", fitting.join(" or ")),
        ),
        [_, (key, ..), ..] => fault(
            &at(key),
            "the objective has two bounds (write an [[objective]] for each)",
        ),
    }
}

/// Returns the keys of bounds that apply to a quantity.
fn keys(quantity: &Quantity) -> &'static [&'static str] {
    match quantity.unit() {
        Unit::FramesPerSecond => &["at-least-pps", "at-least-ratio"],
        Unit::LossRatio => &["at-most-loss-ratio", "at-most-ratio"],
        Unit::Nanoseconds => &["at-most-us", "at-most-ratio"],
        Unit::Seconds => &["at-most-s", "at-most-ratio"],
        Unit::ConnectionsPerSecond
        | Unit::Connections
        | Unit::TransactionsPerSecond
        | Unit::BitsPerSecond => &["at-least", "at-least-ratio"],
        Unit::Ratio => &[],
    }
}

fn reference(objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    let given = [
        ("against", objective.against.is_some()),
        ("baseline", objective.baseline.is_some()),
    ];
    let mut given = given.iter().filter(|(_, is_given)| *is_given);
    match (objective.is_relative(), given.next()) {
        (false, Some((key, _))) => fault(
            &at(key),
            "an absolute bound refers to no other case (use at-least-ratio or at-most-ratio, or remove this key)",
        ),
        (true, None) => fault(
            &at("quantity"),
            "the ratio refers to nothing (add against with a case, or baseline with a store)",
        ),
        _ if objective.baseline.is_none()
            && objective.against.as_ref() == Some(&objective.case) =>
        {
            fault(
                &at("against"),
                "the case is compared with itself (name another)",
            )
        }
        _ => Ok(()),
    }
}

fn selection(objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    let quantity = &objective.quantity;
    if let Some(percentile) = objective.percentile {
        if !quantity.has_percentiles() {
            return fault(
                &at("percentile"),
                format!("{quantity} has no percentiles (remove this key)"),
            );
        }
        if percentile != 100.0 && !PERCENTILES.contains(&percentile) {
            let known: Vec<String> = PERCENTILES.iter().map(f64::to_string).collect();
            return fault(
                &at("percentile"),
                format!(
                    "{percentile} is not available (use {}, or 100 for the maximum)",
                    known.join(", ")
                ),
            );
        }
    } else if *quantity == Quantity::Ipdv {
        return fault(
            &at("quantity"),
            "the mean of the IPDV is always near zero (add percentile = 99, for example)",
        );
    }
    match (quantity, objective.load_percent) {
        (Quantity::Loss, None) => {
            return fault(
                &at("quantity"),
                "the load is missing (add load-percent with a load of [sweep])",
            );
        }
        (Quantity::Loss, _) | (_, None) => {}
        (_, Some(_)) => {
            return fault(
                &at("load-percent"),
                format!("this key applies to loss only, not to {quantity} (remove it)"),
            );
        }
    }
    if objective.load.is_some() && !quantity.has_percentiles() {
        return fault(
            &at("load"),
            format!(
                "this key applies to latency and delay variation only, not to {quantity} (remove it)"
            ),
        );
    }
    Ok(())
}

fn confidence(objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    let [low, high] = CONFIDENCE;
    if (low..=high).contains(&objective.confidence) {
        return Ok(());
    }
    fault(
        &at("confidence"),
        format!(
            "{} must be {low} to {high}, as a part of 1",
            objective.confidence
        ),
    )
}

/// Checks that the study has the section, load and frame size.
fn measured(file: &StudyFile, objective: &Objective, at: impl Fn(&'static str) -> Path) -> Checked {
    if let Some(size) = objective.frame_size
        && !file.traffic.frame_sizes.contains(&size)
    {
        return fault(
            &at("frame-size"),
            format!("{size} is not one of the frame-sizes in [traffic]"),
        );
    }
    let quantity = &objective.quantity;
    if let Quantity::Rate(goal) = quantity {
        let goals = file.search.iter().flat_map(|search| &search.goals);
        let names = goals.map(|goal| goal.name.clone());
        let names: Vec<String> = names.collect();
        if names.contains(goal) {
            return Ok(());
        }
        let mut others = names;
        others.extend(Quantity::names().map(str::to_owned));
        return fault(
            &at("quantity"),
            format!(
                "unknown quantity '{goal}' (available: {})",
                others.join(", ")
            ),
        );
    }
    if let Some(load) = objective.load_percent {
        let known = file
            .sweep
            .as_ref()
            .is_some_and(|sweep| sweep.loads_percent.contains(&load));
        if !known {
            return fault(
                &at("load-percent"),
                format!("{} is not one of the loads-percent in [sweep]", load.get()),
            );
        }
    }
    let (section, is_given) = match (quantity, &objective.load) {
        (Quantity::SystemRecovery, _) => ("[system-recovery]", file.system_recovery.is_some()),
        (Quantity::Reset, _) => ("[reset]", file.reset.is_some()),
        (Quantity::ConnectionsPerSecond, _) => (
            "[connections-per-second]",
            file.connections_per_second.is_some(),
        ),
        (Quantity::ConcurrentConnections, _) => (
            "[concurrent-connections]",
            file.concurrent_connections.is_some(),
        ),
        (Quantity::TransactionsPerSecond, _) => (
            "[transactions-per-second]",
            file.transactions_per_second.is_some(),
        ),
        (Quantity::ConnectionThroughput, _) => (
            "[connection-throughput]",
            file.connection_throughput.is_some(),
        ),
        (Quantity::Loss, _) => ("[sweep]", file.sweep.is_some()),
        (_, Some(_)) => ("[latency-plan]", file.latency_plan.is_some()),
        _ => ("[latency]", file.latency.is_some()),
    };
    if is_given {
        return Ok(());
    }
    fault(
        &at("quantity"),
        format!("the study does not measure {quantity} (add a section {section})"),
    )
}
