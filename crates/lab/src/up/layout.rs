// SPDX-License-Identifier: Apache-2.0
//! Connections between the ports of a topology, for the account of frame loss.

use quietwire_tester::account::{DeviceLayout, PortAt};

use crate::topology::{End, Graph, Join, Role};

/// Returns the links, the joins and the peers of the tester's ports. The tester is the first element, and its ports are in chain
/// order. An element with a port that only receives flooded frames has no joins.
pub(super) fn of(graph: &Graph) -> DeviceLayout {
    let at = |end: &End| {
        let element = graph.elements.get(end.element)?;
        let is_tester = element.role == Role::Tester;
        (!is_tester).then(|| PortAt::new(&element.name, &format!("p{}", end.port)))
    };
    let at_tester = (0..graph.port_count(0)).map(|port| {
        let (_, link) = graph.link_at(End { element: 0, port })?;
        link.ends.iter().find_map(at)
    });
    let links = graph.links.iter().filter_map(|link| {
        let [one, other] = &link.ends;
        Some([at(one)?, at(other)?])
    });
    let is_in_pairs = |join: &&Join| graph.monitors(join.element).is_empty();
    let joins = graph.joins.iter().filter(is_in_pairs).filter_map(|join| {
        let [one, other] = join.ports.map(|port| {
            at(&End {
                element: join.element,
                port,
            })
        });
        Some([one?, other?])
    });
    DeviceLayout {
        at_tester: at_tester.collect(),
        links: links.collect(),
        joins: joins.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::topology::{CATALOG, ElementPlace, Parameters};

    #[test]
    fn with_a_monitor_nothing_is_joined_in_pairs() {
        let topology = crate::topology::named("vNet1").unwrap();
        let graph = topology.graph(&Parameters::default()).unwrap();
        let at = |port: &str| PortAt::new("S", port);
        let plain = of(&graph);
        assert_eq!(plain.joins, [[at("p0"), at("p1")]]);
        assert_eq!(plain.at_tester, ["p0", "p1"].map(|port| Some(at(port))));
        let monitored = of(&graph.with_monitor());
        assert!(monitored.joins.is_empty() && monitored.links.is_empty());
        let ports = ["p0", "p1", "p2"].map(|port| Some(at(port)));
        assert_eq!(monitored.at_tester, ports);
    }

    #[test]
    fn every_port_meets_another_and_is_joined_to_one() {
        for topology in CATALOG {
            let parameters = Parameters {
                inside: ElementPlace::Container,
                ..Parameters::default()
            };
            let graph = topology.graph(&parameters).unwrap();
            let layout = of(&graph);
            assert_eq!(layout.at_tester.len(), 2 * graph.chains.len());
            let at_tester = layout.at_tester.iter().flatten();
            let meeting: Vec<&PortAt> = at_tester.chain(layout.links.iter().flatten()).collect();
            let joined: Vec<&PortAt> = layout.joins.iter().flatten().collect();
            let ports: usize = (1..graph.elements.len())
                .map(|element| graph.port_count(element))
                .sum();
            for all in [meeting, joined] {
                assert_eq!(all.len(), ports, "{}", topology.name);
                assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), ports);
            }
        }
    }
}
