// SPDX-License-Identifier: Apache-2.0
//! Built-in studies: the files of `studies/`, embedded in the program.

use std::path::Path;

use crate::file::{FileError, StudyFile};

/// A built-in study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Name to select it by.
    pub name: &'static str,
    /// Text of its file.
    pub text: &'static str,
}

macro_rules! ready_made {
    ($($name:literal),+ $(,)?) => {
        /// All built-in studies.
        const ALL: &[Ready] = &[$(Ready {
            name: $name,
            text: include_str!(concat!("../../../studies/", $name, ".toml")),
        }),+];
    };
}

ready_made!(
    "address-scale",
    "base-frequency",
    "cache-and-bandwidth",
    "density",
    "edge-noisy-neighbour",
    "firewall",
    "firewall-and-nat",
    "hyperthread-sibling",
    "kernel-vs-userspace-latency",
    "noisy-neighbours",
    "ovs-service-function",
    "phy-to-vm",
    "service-chain",
    "switch-shootout",
    "vm-to-vm",
    "vrouter-partitioning",
);

/// Returns all built-in studies.
#[must_use]
pub fn ready_made() -> &'static [Ready] {
    ALL
}

/// Returns the built-in study of this name.
#[must_use]
pub fn ready(name: &str) -> Option<Ready> {
    ALL.iter().copied().find(|ready| ready.name == name)
}

impl Ready {
    /// Returns the parsed file.
    ///
    /// # Errors
    /// None: a test reads all of them.
    pub fn file(&self) -> Result<StudyFile, FileError> {
        StudyFile::parse(self.text, Path::new(self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::methods::Estimate;

    /// Studies of this kind are short enough for a break; some cases may take a few minutes.
    const DURATION_S_MAX: f64 = 3600.0;

    #[test]
    fn every_file_of_studies_is_part_of_the_program_by_its_name() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let listed = std::fs::read_dir(directory).unwrap();
        let files: BTreeSet<String> = listed
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let known: BTreeSet<String> = ready_made().iter().map(|one| one.name.to_owned()).collect();
        assert_eq!(files, known);
        for one in ready_made() {
            let file = one.file().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.name, one.name);
            assert!(
                file.published.is_some(),
                "{} stands beside nothing",
                one.name
            );
            let estimate = Estimate::of(&file);
            assert!(
                estimate.duration_s <= DURATION_S_MAX,
                "{}: {estimate:?}",
                one.name
            );
            assert_eq!(ready(one.name), Some(*one));
        }
        assert_eq!(ready("no-such-study"), None);
    }

    #[test]
    fn every_ready_made_study_has_objectives() {
        for one in ready_made() {
            let file = one.file().unwrap();
            assert!(!file.objectives.is_empty(), "{}", one.name);
            // Fewer rounds decide nothing.
            assert!(file.rounds >= 5, "{}", one.name);
            assert!(file.objectives.iter().all(|it| it.baseline.is_none()));
        }
    }

    /// Returns true if a place has the number of a page, figure, table or section, or states that the page is unknown.
    fn is_exact(place: &str) -> bool {
        let words: Vec<&str> = place.split([' ', ',', ';', '.']).collect();
        let is_numbered = |pair: &[&str]| {
            ["page", "figure", "table", "section"].contains(&pair[0])
                && pair[1].starts_with(|c: char| c.is_ascii_digit())
        };
        place.contains("page unknown") || words.windows(2).any(is_numbered)
    }

    #[test]
    fn a_place_is_exact_with_a_number_or_as_unknown() {
        for place in ["page 12", "chart of losses, figure 3", "page unknown"] {
            assert!(is_exact(place), "{place}");
        }
        for place in ["", "configuration noisy", "page", "the table", "64 octets"] {
            assert!(!is_exact(place), "{place}");
        }
    }

    #[test]
    fn published_figures_have_a_place_and_a_quantity() {
        for one in ready_made() {
            let published = one.file().unwrap().published.unwrap();
            assert!(published.title.is_some(), "{}", one.name);
            for figure in &published.figures {
                let place = figure.place.as_deref().unwrap_or_default();
                assert!(is_exact(place), "{}: {place}", one.name);
                let reported = figure.quantity.as_deref().unwrap_or_default();
                let is_reported = ["loss", "gain", "what is left", "shorter", "shown as"];
                assert!(
                    is_reported.iter().any(|word| reported.contains(word)),
                    "{}, {}: {reported}",
                    one.name,
                    figure.configuration
                );
            }
        }
    }

    #[test]
    fn goals_allow_what_the_published_sources_allow() {
        for one in ready_made() {
            let file = one.file().unwrap();
            for goal in file.search.iter().flat_map(|search| &search.goals) {
                let allowed = match goal.name.as_str() {
                    "NDR" => 0.0,
                    "PDR" => 0.0001,
                    other => panic!("{}: {other}", one.name),
                };
                assert_eq!(goal.loss_ratio, allowed, "{}: {}", one.name, goal.name);
            }
        }
    }

    #[test]
    fn a_quick_one_is_written_and_read_as_another_study_that_takes_minutes_at_most() {
        for one in ready_made() {
            let whole = one.file().unwrap();
            let text = whole
                .quick()
                .unwrap_or_else(|error| panic!("{}: {error}", one.name));
            let quick = StudyFile::parse(&text, Path::new(one.name)).unwrap();
            assert!(quick.quick && !whole.quick);
            let plain = |file: &StudyFile| file.plain_cases().cloned().collect::<Vec<_>>();
            assert_eq!(plain(&quick), plain(&whole));
            let (short, long) = (Estimate::of(&quick), Estimate::of(&whole));
            assert!(
                short.duration_s < long.duration_s / 2.0,
                "{short:?} {long:?}"
            );
            assert!(short.duration_s <= 180.0, "{}: {short:?}", one.name);
        }
    }
}
