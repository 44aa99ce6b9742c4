// SPDX-License-Identifier: Apache-2.0
//! Outcome of a case in words.

use quietwire_tester::self_test::Verdict;

/// Returns the word for an outcome, and its reasons.
pub(super) fn outcome(verdict: &Verdict) -> (&'static str, &[String]) {
    match verdict {
        Verdict::Agrees => ("agrees", &[]),
        Verdict::Differs(reasons) => ("differs", reasons),
        Verdict::NotProven(reasons) => ("not proven", reasons),
    }
}
