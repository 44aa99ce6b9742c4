// SPDX-License-Identifier: Apache-2.0
//! What published figures may get wrong.

use super::super::limits::{Checked, fault};
use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;
use super::super::{PublishedFigure, Ratio};

/// What was published has a title. Every figure says what the published number is and where it stands, has a ratio, and a case that there is
/// or a reason why there is none.
pub(super) fn published(file: &StudyFile) -> Checked {
    let Some(published) = &file.published else {
        return Ok(());
    };
    if is_missing(published.title.as_ref()) {
        return fault(
            &[Key("published")],
            "it has no title; give that of the source, or its authors and subject",
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
            "it has no quantity; give the published number, and whether it is a loss, a gain or what is left",
        );
    }
    if is_missing(figure.place.as_ref()) {
        return fault(
            whole,
            "it has no place; give page, section, table or chart of the source, or say that it is unknown",
        );
    }
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
