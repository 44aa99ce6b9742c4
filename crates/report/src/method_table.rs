// SPDX-License-Identifier: Apache-2.0
//! A table of the results of one method.

/// A table of one method, over all cases and rounds.
pub(crate) struct FurtherTable {
    /// Heading.
    pub(crate) title: &'static str,
    /// What the figures mean, one or two sentences.
    pub(crate) lead: &'static str,
    /// Heads of the columns behind case and round.
    pub(crate) head: &'static [&'static str],
    /// Case, round, and a text for each column.
    pub(crate) rows: Vec<Vec<String>>,
}
