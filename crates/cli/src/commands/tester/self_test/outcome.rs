// SPDX-License-Identifier: Apache-2.0
//! Outcome of a case in words, and of the command.

use anyhow::{Result, bail};
use quietwire_tester::self_test::Verdict;
use serde::Serialize;
use serde_json::json;

use super::ports::Link;
use crate::exit::CheckFailed;
use crate::text::print;

/// Form and texts of the result.
pub(super) struct Conclusion {
    pub(super) is_json: bool,
    pub(super) link: Link,
    pub(super) duration_s: f64,
    pub(super) seed: u64,
    /// Description of a difference from the ledger of the device, with its verb.
    pub(super) difference: &'static str,
    /// Option for a lower rate.
    pub(super) rate_option: &'static str,
}

impl Conclusion {
    /// Prints the reports and chooses the outcome.
    ///
    /// # Errors
    /// [`CheckFailed`]: a case differs, or no case is proven.
    pub(super) fn print<R: Serialize>(
        &self,
        reports: &[R],
        verdict: impl Fn(&R) -> &Verdict,
        text: impl Fn(&[R]) -> String,
    ) -> Result<()> {
        let count = |is_counted: fn(&Verdict) -> bool| {
            let verdicts = reports.iter().map(&verdict);
            verdicts.filter(|verdict| is_counted(verdict)).count()
        };
        let agreeing = count(|verdict| matches!(verdict, Verdict::Agrees));
        let differing = count(|verdict| matches!(verdict, Verdict::Differs(_)));
        let not_proven = count(|verdict| matches!(verdict, Verdict::NotProven(_)));
        let cases = reports.len();
        if self.is_json {
            print(serde_json::to_string_pretty(&json!({
                "link": self.link,
                "duration_s": self.duration_s,
                "seed": self.seed,
                "agreeing": agreeing,
                "differing": differing,
                "not_proven": not_proven,
                "cases": reports,
            }))?)?;
        } else {
            print(text(reports))?;
            print(format!(
                "{agreeing} of {cases} cases agree, {differing} differ, {not_proven} are not proven"
            ))?;
        }
        if differing > 0 {
            bail!(CheckFailed(format!(
                "{} from the ledger of the device in {differing} of {cases} cases",
                self.difference
            )));
        }
        if agreeing == 0 {
            bail!(CheckFailed(format!(
                "no case could be proven (use a lower {}, or CPUs without other work)",
                self.rate_option
            )));
        }
        Ok(())
    }
}

/// Returns the word for an outcome, and its reasons.
pub(super) fn outcome(verdict: &Verdict) -> (&'static str, &[String]) {
    match verdict {
        Verdict::Agrees => ("agrees", &[]),
        Verdict::Differs(reasons) => ("differs", reasons),
        Verdict::NotProven(reasons) => ("not proven", reasons),
    }
}
