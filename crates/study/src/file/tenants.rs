// SPDX-License-Identifier: Apache-2.0
//! `[tenants]`: chains added to a topology until the loss goal breaks. Each number of them that may be tried is a case.

use quietwire_lab::topology::CHAINS_MAX;
use quietwire_search::Most;

use super::study_file::{Case, StudyFile};

/// Name of the case of so many tenants.
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

    /// The case of so many tenants, with its position.
    pub(crate) fn tenants_case(&self, tenants: u32) -> Option<(usize, &Case)> {
        let mut cases = self.cases.iter().enumerate();
        cases.find(|(_, case)| case.tenants == Some(tenants))
    }

    /// The cases that are in the file as they are.
    pub fn plain_cases(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.tenants.is_none())
    }

    /// Numbers of tenants that are tried at most.
    pub(crate) fn tenants_tried(&self) -> usize {
        self.tenants
            .map_or(0, |plan| Most::bound(plan.most) as usize)
    }
}
