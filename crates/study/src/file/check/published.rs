// SPDX-License-Identifier: Apache-2.0
//! What published figures may get wrong.

use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;
use super::super::{PublishedFigure, Ratio};
use super::limits::{Checked, fault};

/// Every figure has a ratio, and a case that there is or a reason why there is none.
pub(super) fn published(file: &StudyFile) -> Checked {
    let Some(published) = &file.published else {
        return Ok(());
    };
    for (index, known) in published.figures.iter().enumerate() {
        figure(file, known, index)?;
    }
    Ok(())
}

fn figure(file: &StudyFile, figure: &PublishedFigure, index: usize) -> Checked {
    let at = |key| [Key("published"), Key("figure"), Index(index), Key(key)];
    let whole = &at("configuration")[..3];
    if figure.throughput.is_none() && figure.round_trip.is_none() {
        return fault(whole, "it has no ratio; give throughput or round-trip");
    }
    let ratios = [
        ("throughput", figure.throughput),
        ("round-trip", figure.round_trip),
    ];
    let is_wrong = |ratio: Option<Ratio>| ratio.is_some_and(|ratio| !ratio.is_sound());
    if let Some((key, _)) = ratios.iter().find(|(_, ratio)| is_wrong(*ratio)) {
        return fault(
            &at(key),
            "write a ratio above 0, such as 0.6, or two as [0.5, 0.6]",
        );
    }
    match (&figure.case, &figure.otherwise) {
        (Some(_), Some(_)) => {
            return fault(&at("otherwise"), "a case answers to it; leave this out");
        }
        (None, None) => {
            return fault(
                whole,
                "no case answers to it; name one with case, or say why not with otherwise",
            );
        }
        _ => {}
    }
    for (key, name) in [("case", &figure.case), ("against", &figure.against)] {
        let Some(name) = name else { continue };
        if !file.cases.iter().any(|case| case.name == *name) {
            return fault(&at(key), format!("there is no case '{name}'"));
        }
    }
    Ok(())
}
