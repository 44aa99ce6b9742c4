// SPDX-License-Identifier: Apache-2.0
//! Kinds of neighbours, which are data: `kinds.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

const KINDS: &str = include_str!("kinds.toml");

/// A kind of neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourKind {
    /// Its name, as it is chosen by.
    pub name: String,
    /// What it takes from others.
    pub about: String,
    stressors: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Kinds {
    kind: Vec<NeighbourKind>,
}

/// All kinds there are.
pub fn neighbour_kinds() -> &'static [NeighbourKind] {
    // It is part of the program; a test reads it, and nothing else can be wrong with it.
    static ALL: LazyLock<Kinds> = LazyLock::new(|| toml::from_str(KINDS).unwrap_or_default());
    &ALL.kind
}

impl NeighbourKind {
    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        neighbour_kinds().iter().find(|kind| kind.name == name)
    }

    /// Options of stress-ng for so many workers of each of its stressors.
    #[must_use]
    pub fn stressors(&self, count: u32) -> Vec<String> {
        let count = count.to_string();
        let texts = self.stressors.iter();
        texts.map(|text| text.replace("{count}", &count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quietwire_host::CpuList;

    use super::*;
    use crate::{NeighbourPlace, NeighbourSpec};

    #[test]
    fn stress_ng_takes_what_every_kind_says() {
        let names: BTreeSet<&str> = neighbour_kinds().iter().map(|kind| &*kind.name).collect();
        assert_eq!(names.len(), 10);
        for kind in neighbour_kinds() {
            let stressors = kind.stressors(3);
            assert!(stressors.iter().all(|text| text.contains(" 3")), "{kind:?}");
            let spec = NeighbourSpec {
                stressors,
                place: NeighbourPlace::Process,
                network: None,
                cpus: CpuList::new(),
            };
            spec.check().unwrap();
        }
        assert!(NeighbourKind::named("cache-l3").is_some());
        assert_eq!(NeighbourKind::named("cache-l4"), None);
    }
}
