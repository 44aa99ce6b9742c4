// SPDX-License-Identifier: Apache-2.0
//! `[published]`: published figures, for comparison with measured ones. Only ratios of one configuration to another are
//! comparable; rates depend on the machine.

use serde::{Deserialize, Serialize};

/// Published figures (`[published]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Published {
    /// Title of the source, or its authors and subject if the title is unknown. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Place of the publication, machine of the measurement, and method.
    pub source: String,
    /// Differences between the published setup and this study.
    pub differs: String,
    /// Figures.
    #[serde(rename = "figure")]
    pub figures: Vec<PublishedFigure>,
}

/// A published figure (`[[published.figure]]`): one configuration relative to another. At least one of the ratios is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PublishedFigure {
    /// Configuration, in the words of the source.
    pub configuration: String,
    /// Published number in its own terms, and whether it is a loss, a gain or what is left: `a loss of 81 %`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<String>,
    /// Place in the source: page, section, table or chart, or that it is unknown. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Throughput relative to the other configuration: 0.6 for 60 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Ratio>,
    /// Mean round trip relative to the other configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<Ratio>,
    /// Case of this study that corresponds to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Case that corresponds to the other configuration. Default: the first case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Why no case corresponds to it, if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// A ratio or a range of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ratio {
    /// A single ratio.
    One(f64),
    /// A range, from the first to the second.
    Range([f64; 2]),
}

impl Ratio {
    /// Returns the smallest and the largest ratio.
    #[must_use]
    pub fn bounds(self) -> [f64; 2] {
        match self {
            Self::One(ratio) => [ratio, ratio],
            Self::Range(bounds) => bounds,
        }
    }

    /// Returns true if this is a valid ratio of rates or times.
    pub(super) fn is_sound(self) -> bool {
        let [low, high] = self.bounds();
        low > 0.0 && low <= high && high.is_finite()
    }
}
