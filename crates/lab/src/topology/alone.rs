// SPDX-License-Identifier: Apache-2.0
//! Additions to a topology for measurements of a standalone switch: settings, and a port that receives flooded frames.

use super::graph::{Element, End, Graph, Link};
use super::kinds::Role;
use super::program::Program;
use super::settings::SwitchSettings;

impl Graph {
    /// Sets the settings of quietwire's switches.
    #[must_use]
    pub fn with_settings(mut self, settings: &SwitchSettings) -> Self {
        let is_switch = |element: &&mut Element| {
            element.role == Role::Switch && element.program == Program::Quietwire
        };
        for element in self.elements.iter_mut().filter(is_switch) {
            element.settings = Some(settings.clone());
        }
        self
    }

    /// Adds a port to the first element of the first chain, at which the tester receives the frames that a bridge floods (RFC 2889,
    /// section 5.7.3).
    #[must_use]
    pub fn with_monitor(mut self) -> Self {
        let first = self.chains.first().and_then(|chain| chain.first());
        let Some(first) = first.and_then(|link| self.links.get(*link)).cloned() else {
            return self;
        };
        let ends = first.ends.map(|End { element, .. }| End {
            element,
            port: self.port_count(element),
        });
        self.links.push(Link { ends, ..first });
        self
    }

    /// Returns the ports of an element that have no join: they send only frames that a bridge floods.
    pub(crate) fn monitors(&self, element: usize) -> Vec<usize> {
        let joins = self.joins.iter().filter(|join| join.element == element);
        let joined: Vec<usize> = joins.flat_map(|join| join.ports).collect();
        let ports = 0..self.port_count(element);
        ports.filter(|port| !joined.contains(port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkKind, Parameters, named};
    use super::*;

    fn switch_alone() -> Graph {
        let topology = named("vNet1").unwrap();
        topology.graph(&Parameters::default()).unwrap()
    }

    #[test]
    fn a_monitor_is_one_more_port_that_nothing_is_joined_to() {
        let graph = switch_alone();
        assert!(graph.monitors(1).is_empty());
        let graph = graph.with_monitor();
        assert_eq!(graph.monitors(1), [2]);
        assert_eq!([0, 1].map(|element| graph.port_count(element)), [3, 3]);
        let (_, link) = graph
            .link_at(End {
                element: 0,
                port: 2,
            })
            .unwrap();
        assert_eq!(link.kind, LinkKind::Memif);
        assert_eq!(
            link.ends[1],
            End {
                element: 1,
                port: 2
            }
        );
        // The chain is unchanged.
        assert_eq!(graph.chains, switch_alone().chains);
        assert_eq!(graph.path(0), [0, 1, 0]);
    }

    #[test]
    fn settings_are_the_switchs_and_a_graph_without_them_is_written_as_before() {
        let settings = SwitchSettings {
            service_cpus: "0".parse().unwrap(),
            control_cpus: "0".parse().unwrap(),
            rx_ring_size: 512,
            tx_ring_size: 1024,
            idle: quietwire_base::Idle::Yield,
            is_pinned: true,
            huge_pages: false,
            memory_mib: 64,
            frame_size_max: 1518,
            mac_addresses_max: 1024,
            has_neighbour_ports: false,
        };
        let plain = serde_json::to_string(&switch_alone()).unwrap();
        assert!(!plain.contains("settings"), "{plain}");
        let graph = switch_alone().with_settings(&settings);
        assert_eq!(graph.elements[0].settings, None);
        assert_eq!(graph.elements[1].settings, Some(settings));
        let written = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&written).unwrap(), graph);
    }
}
