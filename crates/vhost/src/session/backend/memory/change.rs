// SPDX-License-Identifier: Apache-2.0
//! A change of the memory table.

use crate::message::Region;

/// Change of the memory table, which takes effect once the caller has mapped it.
#[derive(Debug)]
pub(in crate::session::backend) enum Change {
    Replace(Vec<Region>),
    Add(Region),
    Remove(Region),
}

impl Change {
    pub(in crate::session::backend) fn apply(self, regions: &mut Vec<Region>) {
        match self {
            Self::Replace(table) => *regions = table,
            Self::Add(region) => regions.push(region),
            Self::Remove(region) => regions.retain(|other| !other.is_same_range(&region)),
        }
    }
}
