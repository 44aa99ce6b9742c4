// SPDX-License-Identifier: Apache-2.0
//! `[tenants]`: adds chains to a topology until the loss goal breaks. Each number of tenants is a case.

use quietwire_lab::topology::CHAINS_MAX;
use quietwire_search::MaxCount;

use super::study_file::{Case, StudyFile};

/// Returns the name of the case with this number of tenants.
fn case_name(tenants: u32) -> String {
    format!("tenants-{tenants}")
}

impl StudyFile {
    /// Adds a case for each number of tenants that may be tried.
    pub(super) fn add_tenants(&mut self) {
        let most = self.tenants.map_or(0, |plan| plan.most.min(CHAINS_MAX));
        self.cases.extend((1..=most).map(|tenants| Case {
            name: case_name(tenants),
            chains: Some(tenants),
            tenants: Some(tenants),
            ..Case::default()
        }));
    }

    /// Returns the case with this number of tenants, and its position.
    pub(crate) fn tenants_case(&self, tenants: u32) -> Option<(usize, &Case)> {
        let mut cases = self.cases.iter().enumerate();
        cases.find(|(_, case)| case.tenants == Some(tenants))
    }

    /// Returns the cases that are written in the file.
    pub fn plain_cases(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.tenants.is_none())
    }

    /// Returns the maximum number of tenant counts that are tried.
    pub(crate) fn tenants_tried(&self) -> usize {
        self.tenants
            .map_or(0, |plan| MaxCount::bound(plan.most) as usize)
    }
}
