// SPDX-License-Identifier: Apache-2.0
//! The table of the kinds of neighbours.

/// A kind of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourKind {
    /// Name in study files.
    pub name: &'static str,
    /// The resources that it takes from others.
    pub about: &'static str,
    stressors: &'static [&'static str],
}

/// All kinds. `{count}` becomes the number of workers of each stressor (stress-ng(1)).
const KINDS: &[NeighbourKind] = &[
    NeighbourKind {
        name: "cpu",
        about: "square roots: only the execution units of a core",
        stressors: &["--cpu {count} --cpu-method sqrt"],
    },
    NeighbourKind {
        name: "cpu-malloc",
        about: "square roots, and memory that is allocated, written and released, as in published studies of edge platforms",
        stressors: &[
            "--cpu {count} --cpu-method sqrt",
            "--malloc {count} --malloc-bytes 256M",
        ],
    },
    NeighbourKind {
        name: "cache-l1",
        about: "the first-level data cache of a core",
        stressors: &["--l1cache {count}"],
    },
    NeighbourKind {
        name: "cache-l2",
        about: "as much as the second-level cache holds",
        stressors: &["--cache {count} --cache-level 2"],
    },
    NeighbourKind {
        name: "cache-l3",
        about: "as much as the last-level cache holds, which cores share",
        stressors: &["--cache {count} --cache-level 3"],
    },
    NeighbourKind {
        name: "memory-bandwidth",
        about: "long runs through memory that no cache holds (STREAM)",
        stressors: &["--stream {count}"],
    },
    NeighbourKind {
        name: "io",
        about: "repeated writes of all buffers to the disks (sync(2))",
        stressors: &["--io {count}"],
    },
    NeighbourKind {
        name: "socket",
        about: "the kernel's sockets over the loopback interface",
        stressors: &["--sock {count}"],
    },
    NeighbourKind {
        name: "context-switches",
        about: "two processes that send messages to each other",
        stressors: &["--switch {count}"],
    },
    NeighbourKind {
        name: "timers",
        about: "interrupts of timers, 10,000 a second for each worker",
        stressors: &["--timer {count} --timer-freq 10000"],
    },
];

/// Returns all kinds.
#[must_use]
pub fn neighbour_kinds() -> &'static [NeighbourKind] {
    KINDS
}

impl NeighbourKind {
    /// Returns the kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        neighbour_kinds().iter().find(|kind| kind.name == name)
    }

    /// Returns the options of stress-ng for `count` workers of each of its stressors.
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
    fn stress_ng_accepts_the_options_of_every_kind() {
        let names: BTreeSet<&str> = neighbour_kinds().iter().map(|kind| kind.name).collect();
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
