// SPDX-License-Identifier: Apache-2.0
//! Topologies of a standalone switch, and additions to them: settings, and a port that receives flooded frames.

use super::graph::{Element, End, Graph, Link};
use super::kinds::{ElementPlace, Encapsulation, LinkKind, Role};
use super::program::Program;
use super::settings::SwitchSettings;

impl Graph {
    /// Returns true for one switch of quietwire on the host, connected to the tester by memif in one chain of Ethernet frames: it supports
    /// [`Self::with_settings`] and [`Self::with_monitor`], and can be restarted.
    #[must_use]
    pub fn is_standalone_switch(&self) -> bool {
        let [_, switch] = &self.elements[..] else {
            return false;
        };
        switch.role == Role::Switch
            && switch.program == Program::Quietwire
            && switch.place == ElementPlace::Host
            && self.chains.len() == 1
            && self.encapsulation == Encapsulation::L2
            && self.links.iter().all(|link| link.kind == LinkKind::Memif)
    }

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
    use super::super::{Parameters, named};
    use super::*;

    fn standalone_switch() -> Graph {
        let topology = named("vNet1").unwrap();
        topology.graph(&Parameters::default()).unwrap()
    }

    #[test]
    fn one_switch_of_quietwire_over_memif_is_standalone() {
        assert!(standalone_switch().is_standalone_switch());
        assert!(standalone_switch().with_monitor().is_standalone_switch());
        let usual = Parameters::default;
        for (name, parameters) in [
            ("vNet2", usual()),
            ("vNet4-1VNF", usual()),
            ("vComp1-Host", usual()),
            (
                "vNet1",
                Parameters {
                    link: Some(LinkKind::VhostUser),
                    ..usual()
                },
            ),
            (
                "vNet1",
                Parameters {
                    switch: Program::TestpmdIo,
                    ..usual()
                },
            ),
            (
                "vNet1",
                Parameters {
                    encapsulation: Encapsulation::Vxlan,
                    ..usual()
                },
            ),
        ] {
            let graph = named(name).unwrap().graph(&parameters).unwrap();
            assert!(!graph.is_standalone_switch(), "{name}: {parameters:?}");
        }
    }

    #[test]
    fn a_monitor_is_one_more_port_that_nothing_is_joined_to() {
        let graph = standalone_switch();
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
        assert_eq!(graph.chains, standalone_switch().chains);
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
        let plain = serde_json::to_string(&standalone_switch()).unwrap();
        assert!(!plain.contains("settings"), "{plain}");
        let graph = standalone_switch().with_settings(&settings);
        assert_eq!(graph.elements[0].settings, None);
        assert_eq!(graph.elements[1].settings, Some(settings));
        let written = serde_json::to_string(&graph).unwrap();
        assert_eq!(
            serde_json::from_slice::<Graph>(written.as_bytes()).unwrap(),
            graph
        );
    }
}
