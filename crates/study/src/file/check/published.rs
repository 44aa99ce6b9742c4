// SPDX-License-Identifier: Apache-2.0
//! Checks of published figures.

use super::super::limits::{Checked, fault};
use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;
use super::super::{PublishedFigure, Ratio};

/// Checks that the source has a title, and that every figure has a quantity, a place in the source, a ratio, and either an existing case
/// or a reason why there is none.
pub(super) fn published(file: &StudyFile) -> Checked {
    let Some(published) = &file.published else {
        return Ok(());
    };
    if is_missing(published.title.as_ref()) {
        return fault(
            &[Key("published")],
            "title is missing (write the title of the source, or its authors and subject)",
        );
    }
    for (index, known) in published.figures.iter().enumerate() {
        figure(file, known, index)?;
    }
    Ok(())
}

fn is_missing(text: Option<&String>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}

fn figure(file: &StudyFile, figure: &PublishedFigure, index: usize) -> Checked {
    let at = |key| [Key("published"), Key("figure"), Index(index), Key(key)];
    let whole = &at("configuration")[..3];
    if is_missing(figure.quantity.as_ref()) {
        return fault(
            whole,
            "quantity is missing (write the published number, and whether it is a loss, a gain or what is left)",
        );
    }
    if is_missing(figure.place.as_ref()) {
        return fault(
            whole,
            "place is missing (write page, section, table or chart of the source, or that it is unknown)",
        );
    }
    if figure.throughput.is_none() && figure.round_trip.is_none() {
        return fault(whole, "no ratio is given (add throughput or round-trip)");
    }
    let ratios = [
        ("throughput", figure.throughput),
        ("round-trip", figure.round_trip),
    ];
    let is_wrong = |ratio: Option<Ratio>| ratio.is_some_and(|ratio| !ratio.is_sound());
    if let Some((key, _)) = ratios.iter().find(|(_, ratio)| is_wrong(*ratio)) {
        return fault(
            &at(key),
            "a ratio must be above 0 (write 0.6, for example, or [0.5, 0.6] for a range)",
        );
    }
    match (&figure.case, &figure.otherwise) {
        (Some(_), Some(_)) => {
            return fault(&at("otherwise"), "the figure has a case (remove this key)");
        }
        (None, None) => {
            return fault(
                whole,
                "the figure has no case (name one with case, or explain with otherwise why there is none)",
            );
        }
        _ => {}
    }
    for (key, name) in [("case", &figure.case), ("against", &figure.against)] {
        let Some(name) = name else { continue };
        if !file.cases.iter().any(|case| case.name == *name) {
            return fault(&at(key), format!("unknown case '{name}'"));
        }
    }
    Ok(())
}
