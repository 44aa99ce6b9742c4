// SPDX-License-Identifier: Apache-2.0
//! Lines about the validity of a result.

use quietwire_tester::Validity;

use super::losses::INDENT;
use crate::text::fold;

/// Returns `valid`, or a line for each reason why the result is invalid, folded to `width` columns.
pub(super) fn validity_lines(validity: &Validity, width: usize) -> Vec<String> {
    match validity {
        Validity::Valid => vec!["valid".to_owned()],
        Validity::Invalid(reasons) => {
            let lines = reasons.iter();
            lines
                .map(|reason| fold(&format!("INVALID    {reason}"), width, INDENT))
                .collect()
        }
    }
}
