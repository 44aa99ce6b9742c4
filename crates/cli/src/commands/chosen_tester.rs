// SPDX-License-Identifier: Apache-2.0
//! `--tester`: the choice of the traffic generator.

use std::str::FromStr;

use anyhow::Result;
use quietwire_study::{GeneratorBench, StudyFile};
use quietwire_tester::{SimOptions, SimulatedDevice, TREX_PORT, TrafficGenerator, Trex};

/// A traffic generator other than the built-in one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChosenTester {
    /// A simulated device.
    Simulated(SimOptions),
    /// Address of a TRex server, `HOST:PORT`.
    Trex(String),
}

impl FromStr for ChosenTester {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "sim" => rest
                .parse()
                .map(Self::Simulated)
                .map_err(|error: quietwire_tester::SimOptionError| error.to_string()),
            "trex" if !rest.is_empty() => Ok(Self::Trex(if rest.contains(':') {
                rest.to_owned()
            } else {
                format!("{rest}:{TREX_PORT}")
            })),
            _ => Err(format!(
                "unknown tester '{text}' (use sim, sim:KEY=VALUE,… or trex:HOST, or omit the option for the built-in tester)"
            )),
        }
    }
}

impl ChosenTester {
    /// Returns true for a simulated device.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Opens the generator. A simulated device continues after `made` trials of the study.
    pub(crate) fn open(&self, made: u64) -> Result<Box<dyn TrafficGenerator>> {
        Ok(match self {
            Self::Trex(address) => Box::new(Trex::connect(address)?),
            Self::Simulated(options) => {
                let mut device = SimulatedDevice::new(options.clone());
                device.skip_trials(made);
                Box::new(device)
            }
        })
    }

    /// Opens a bench with this generator for a study that has `made` trials already.
    pub(crate) fn bench(&self, file: &StudyFile, made: u64) -> Result<GeneratorBench> {
        Ok(GeneratorBench::new(file, self.open(made)?)?)
    }
}
