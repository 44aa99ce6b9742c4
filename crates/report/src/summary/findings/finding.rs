// SPDX-License-Identifier: Apache-2.0
//! A finding.

use serde::Serialize;

/// A cause that the data of a case shows, with its evidence and the cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineFinding {
    /// Name of the rule: `preempted`. It is also the name of its section in the guide.
    pub rule: &'static str,
    /// Case.
    pub case: String,
    /// The finding and its evidence, one sentence.
    pub text: String,
    /// The cure, as a clause.
    pub cure: String,
    /// Section of the guide.
    pub page: String,
}

impl MachineFinding {
    /// Returns a finding of a rule about a case.
    pub(super) fn new(rule: &'static str, case: &str, text: String, cure: &str) -> Self {
        Self {
            rule,
            case: case.to_owned(),
            text,
            cure: cure.to_owned(),
            page: format!("docs/findings.md#{rule}"),
        }
    }
}
