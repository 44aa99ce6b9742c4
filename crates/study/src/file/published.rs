// SPDX-License-Identifier: Apache-2.0
//! `[published]`: what others published, to stand beside what a study measures. Ratios of one configuration to another are
//! what can be compared; rates belong to the machines that they were measured on.

use serde::{Deserialize, Serialize};

/// `[published]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Published {
    /// What was published: its title, or its authors and subject where no title is known. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it was published, on what it was measured and how.
    pub source: String,
    /// What is otherwise here, so that nobody takes one for the other.
    pub differs: String,
    /// The figures.
    #[serde(rename = "figure")]
    pub figures: Vec<PublishedFigure>,
}

/// `[[published.figure]]`: one configuration against another. At least one of the ratios is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PublishedFigure {
    /// The configuration, as it was published.
    pub configuration: String,
    /// The published number in its own terms, and whether it is a loss, a gain or what is left: `a loss of 81 %`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<String>,
    /// Where it stands in the source: page, section, table or chart, or that this is unknown. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Throughput over that of the other configuration: 0.6 for 60 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Ratio>,
    /// Mean round trip over that of the other configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<Ratio>,
    /// The case of this study that answers to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// The case that answers to the other configuration; the first where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Why no case answers to it, where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// A ratio, or what it ranges over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ratio {
    /// One.
    One(f64),
    /// From the first to the second.
    Range([f64; 2]),
}

impl Ratio {
    /// The smallest and the largest.
    #[must_use]
    pub fn bounds(self) -> [f64; 2] {
        match self {
            Self::One(ratio) => [ratio, ratio],
            Self::Range(bounds) => bounds,
        }
    }

    /// Whether it is a ratio of rates or times.
    pub(super) fn is_sound(self) -> bool {
        let [low, high] = self.bounds();
        low > 0.0 && low <= high && high.is_finite()
    }
}
