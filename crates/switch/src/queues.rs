// SPDX-License-Identifier: Apache-2.0
//! Who polls what: receive queues dealt out to forwarding threads, and a transmit queue for each thread that
//! sends to a port.

use std::collections::BTreeSet;

use quietwire_dpdk::PortUri;

use crate::config::{Group, Plan};
use crate::error::SwitchError;

/// Which threads serve which ports. Threads are counted from 0, in the order of the forwarding CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Thread of each port's receive queue.
    pub(crate) reader: Vec<usize>,
    /// Threads that send to each port, in the order of its transmit queues.
    pub(crate) senders: Vec<Vec<usize>>,
}

/// Transmit queues of ports that have one only; DPDK knows how many the others have.
fn transmit_queues_max(uri: &PortUri) -> usize {
    match uri {
        PortUri::Memif { .. }
        | PortUri::VirtioUser { .. }
        | PortUri::Vhost { .. }
        | PortUri::AfXdp { .. }
        | PortUri::AfPacket { .. } => 1,
        PortUri::Null | PortUri::Pci { .. } => usize::from(u16::MAX),
    }
}

/// Deals out the ports' receive queues to the forwarding threads in turn.
///
/// # Errors
/// [`SwitchError::Config`] when more threads would send to a port than it has transmit queues.
pub(crate) fn deal(plan: &Plan) -> Result<Queues, SwitchError> {
    let threads = plan.forwarding_cpus.len();
    let reader: Vec<usize> = (0..plan.ports.len()).map(|port| port % threads).collect();
    let mut senders = vec![BTreeSet::new(); plan.ports.len()];
    for group in &plan.groups {
        for output in group.ports() {
            let others = group.ports().iter().filter(|port| *port != output);
            senders[*output] = others.map(|port| reader[*port]).collect();
        }
    }
    for (port, senders) in plan.ports.iter().zip(&senders) {
        let most = transmit_queues_max(&port.uri);
        if senders.len() > most {
            return Err(SwitchError::Config {
                place: format!("port '{}'", port.name),
                what: format!(
                    "{} forwarding threads would send to it, and {} has {most} transmit queue; use one forwarding CPU for bridges of more than two such ports",
                    senders.len(),
                    port.uri
                ),
            });
        }
    }
    Ok(Queues {
        reader,
        senders: senders
            .into_iter()
            .map(|threads| threads.into_iter().collect())
            .collect(),
    })
}

/// Number of the group of each port; every port is in one.
pub(crate) fn groups(plan: &Plan) -> Vec<Option<&Group>> {
    let mut groups = vec![None; plan.ports.len()];
    for group in &plan.groups {
        for port in group.ports() {
            groups[*port] = Some(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BridgeSetting, Place, PortSetting, Settings};

    fn plan(uris: &[&str], cpus: &str) -> Plan {
        let names: Vec<String> = (0..uris.len()).map(|port| format!("p{port}")).collect();
        let ports = names.iter().zip(uris).map(|(name, uri)| PortSetting {
            name: name.clone(),
            uri: (*uri).to_owned(),
            place: Place::Option("--port"),
        });
        let settings = Settings {
            ports: Some(ports.collect()),
            bridges: Some(vec![BridgeSetting {
                name: "lan".to_owned(),
                ports: names.clone(),
                max_entries: None,
                ageing_s: None,
                place: Place::Option("--bridge"),
            }]),
            forwarding_cpus: Some(cpus.parse().unwrap()),
            ..Settings::default()
        };
        settings.plan(&"0-3".parse().unwrap()).unwrap()
    }

    const MEMIFS: [&str; 3] = [
        "memif:/a?role=server",
        "memif:/b?role=server",
        "memif:/c?role=server",
    ];

    #[test]
    fn one_thread_serves_all() {
        let queues = deal(&plan(&MEMIFS, "3")).unwrap();
        assert_eq!(queues.reader, [0, 0, 0]);
        assert_eq!(queues.senders, [[0], [0], [0]]);
    }

    #[test]
    fn two_threads_need_two_transmit_queues_only_where_both_send() {
        let queues = deal(&plan(&["null:", "null:", "null:"], "2,3")).unwrap();
        assert_eq!(queues.reader, [0, 1, 0]);
        assert_eq!(queues.senders, [vec![0, 1], vec![0], vec![0, 1]]);
        let pair = deal(&plan(&MEMIFS[..2], "2,3")).unwrap();
        assert_eq!(pair.senders, [[1], [0]]);
        let error = deal(&plan(&MEMIFS, "2,3")).unwrap_err().to_string();
        assert!(error.contains("port 'p0': 2 forwarding threads"), "{error}");
    }
}
