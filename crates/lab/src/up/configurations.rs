// SPDX-License-Identifier: Apache-2.0
//! Checks of the configurations of quietwire's switches in a topology, before anything is started.

use std::path::Path;

use quietwire_host::CpuList;

use super::wiring::Wiring;
use crate::programs::check_config;
use crate::topology::{Assignment, Graph, TopologyError};

/// Checks the configurations of all elements with their ports, interfaces and addresses.
///
/// # Errors
/// [`TopologyError::Wrong`]: the first fault, with the name of the element.
pub fn check_configurations(graph: &Graph) -> Result<(), TopologyError> {
    let cpus = Assignment {
        elements: vec![CpuList::new(); graph.elements.len()],
        rest: CpuList::new(),
        shared: Vec::new(),
    };
    let wiring = Wiring::of(graph, Path::new(""), "");
    let configured = graph.elements.iter().enumerate();
    for (index, element) in configured.filter(|(_, element)| element.config.is_some()) {
        check_config(&wiring.plan_of((graph, &cpus), index))
            .map_err(|message| TopologyError::Wrong(format!("{}: {message}", element.name)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Encapsulation, Parameters, Program, named};

    fn checked(switch: Program, config: &str) -> Result<(), String> {
        let parameters = Parameters {
            switch,
            encapsulation: Encapsulation::Ipv4,
            switch_config: Some(config.to_owned()),
            ..Parameters::default()
        };
        let graph = named("vNet1").unwrap().graph(&parameters);
        check_configurations(&graph.unwrap()).map_err(|error| error.to_string())
    }

    const NAT: &str = "[[nat]]\nname = \"n\"\ninterface = \"i1\"\n";
    const TRACKED: &str = "[connections]\nmax-entries = 9\n\
                           [[rule]]\nname = \"new\"\naction = \"accept\"\nct-state = \"new\"\nport = \"p0\"";

    #[test]
    fn rules_connections_and_nat_are_checked_with_ports_and_interfaces() {
        for switch in [
            Program::Quietwire,
            Program::Firewall,
            Program::QuietwireRouter,
            Program::Nat,
        ] {
            assert_eq!(checked(switch, TRACKED), Ok(()), "{switch}");
            assert_eq!(checked(switch, "# none"), Ok(()), "{switch}");
        }
        for switch in [Program::QuietwireRouter, Program::Nat] {
            let both = format!("{NAT}{TRACKED}");
            assert_eq!(checked(switch, &both), Ok(()));
        }
        let (_, without) = TRACKED.split_once("[[rule]]").unwrap();
        for (switch, config, part) in [
            (Program::Quietwire, NAT.to_owned(), "no such interface"),
            (
                Program::Firewall,
                format!("[[rule]]{without}"),
                "ct-state requires connection tracking",
            ),
            (Program::QuietwireRouter, TRACKED.replace("p0", "p2"), "p2"),
        ] {
            let error = checked(switch, &config).unwrap_err();
            assert!(error.starts_with("S: ") && error.contains(part), "{error}");
        }
    }
}
