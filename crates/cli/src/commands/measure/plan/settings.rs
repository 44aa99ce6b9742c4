// SPDX-License-Identifier: Apache-2.0
//! Methods, goals and keys on the command line.

use std::str::FromStr;

use clap::ValueEnum;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands::measure) enum MeasuredMethod {
    SingleRun,
    BestOfN,
    WorstOfN,
    BestAndWorstOfN,
    Repeat,
    Mlrsearch,
    #[value(alias = "frame-loss-sweep")]
    LossSweep,
    LossDistribution,
    ForwardingRateAtMaxLoad,
    Latency,
    Soak,
    BackToBack,
    SystemRecovery,
    Reset,
    AddressCaching,
    AddressLearningRate,
}

/// `KEY=VALUE` or `SECTION.KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands::measure) struct Assignment {
    pub(in crate::commands::measure) section: Option<String>,
    pub(in crate::commands::measure) key: String,
    pub(in crate::commands::measure) value: String,
}

/// `NAME=RATIO`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands::measure) struct NamedGoal {
    pub(in crate::commands::measure) name: String,
    pub(in crate::commands::measure) loss_ratio: f64,
}

/// Returns true if the text is a bare key of TOML.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Converts a value to TOML. Numbers, booleans and lists stay unchanged, any other value becomes a string.
fn written(value: &str) -> String {
    let is_literal = value.parse::<f64>().is_ok()
        || ["true", "false"].contains(&value)
        || (value.starts_with('[') && value.ends_with(']'))
        || (value.starts_with('"') && value.ends_with('"') && value.len() > 1);
    if is_literal {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((path, value)) = text.split_once('=') else {
            return Err("expected KEY=VALUE".to_owned());
        };
        let (section, key) = match path.split_once('.') {
            Some((section, key)) => (Some(section.to_owned()), key),
            None => (None, path),
        };
        if !is_plain(key) || !section.as_deref().is_none_or(is_plain) || value.contains('\n') {
            return Err(format!(
                "'{path}' is not a key (use KEY=VALUE or SECTION.KEY=VALUE)"
            ));
        }
        Ok(Self {
            section,
            key: key.to_owned(),
            value: written(value),
        })
    }
}

impl FromStr for NamedGoal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a goal (use NAME=RATIO, such as PDR=0.0001)");
        let (name, ratio) = text.split_once('=').ok_or_else(wrong)?;
        let loss_ratio: f64 = ratio.parse().map_err(|_| wrong())?;
        if name.is_empty() || !loss_ratio.is_finite() {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            loss_ratio,
        })
    }
}

impl MeasuredMethod {
    pub(in crate::commands::measure) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Its section.
    pub(in crate::commands::measure) fn section(self) -> &'static str {
        match self {
            Self::LossSweep => "sweep",
            Self::LossDistribution => "loss-distribution",
            Self::ForwardingRateAtMaxLoad => "forwarding-rate",
            Self::Latency => "latency-plan",
            Self::Soak => "soak",
            Self::BackToBack => "back-to-back",
            Self::SystemRecovery => "system-recovery",
            Self::Reset => "reset",
            Self::AddressCaching => "address-caching",
            Self::AddressLearningRate => "address-learning-rate",
            _ => "search",
        }
    }

    /// Keys of its section where nothing else is asked for.
    pub(in crate::commands::measure) fn usual(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::LossSweep => &[("loads-percent", "[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]")],
            Self::LossDistribution => &[("trials", "20"), ("between", "\"PDR\"")],
            Self::Latency => &[("parts-of", "\"ndr\"")],
            Self::Soak => &[("duration-s", "60")],
            Self::Repeat => &[("repeats", "20")],
            _ => &[],
        }
    }

    /// The search that gives it its rates; none where it needs none.
    pub(in crate::commands::measure) fn search(self, has_rate: bool) -> Option<Self> {
        match self {
            Self::SingleRun
            | Self::BestOfN
            | Self::WorstOfN
            | Self::BestAndWorstOfN
            | Self::Mlrsearch => Some(self),
            Self::LossDistribution if !has_rate => Some(Self::BestAndWorstOfN),
            // Its loads are parts of a rate, so that one lost trial must not lower them.
            Self::Latency => Some(Self::BestOfN),
            Self::Repeat => Some(Self::SingleRun),
            Self::BackToBack | Self::SystemRecovery | Self::Reset if !has_rate => {
                Some(Self::SingleRun)
            }
            _ => None,
        }
    }
}
