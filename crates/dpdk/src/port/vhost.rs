// SPDX-License-Identifier: Apache-2.0
//! Ports on the host side of vhost-user: sockets, and copies between a guest's rings and packet buffers. `quietwire_vhost` has
//! messages, sessions and rings.

mod connection;
mod endpoint;
mod memory;
mod rings;
mod slots;

use std::sync::Arc;

use quietwire_memory::Sealing;
use quietwire_vhost::features::*;
use quietwire_vhost::session::backend::BackendConfig;

use self::endpoint::Endpoint;
pub(crate) use self::rings::{Receiver, Sender};
use self::slots::Slots;
use super::interrupts::Interrupts;
use super::options::{PortOptions, length_max};
use super::peer::{Begin, PeerPort, Status, add_endpoint, gated_queues};
use super::peers::socket::Address;
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::uri::{PortUri, Role};

type Opened = (PeerPort, Vec<Receiver>, Vec<Sender>);

/// Opens a port. It listens or connects after its start.
pub(super) fn open(
    eal: &Eal,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
    interrupts: &[Interrupts],
) -> Result<Opened, Error> {
    let PortUri::Vhost { path, role, .. } = uri else {
        return Err(Error::PortOptions {
            port: options.name.clone(),
            what: format!("{uri} is not a vhost port"),
        });
    };
    let status = Arc::new(Status::default());
    let limit = length_max(options);
    let rx = gated_queues(options.rx_queues, |reader, counters| {
        Receiver::new(reader, pool.clone(), limit, counters)
    });
    let tx = gated_queues(options.tx_queues, |reader, counters| {
        Sender::new(reader, Arc::clone(&status), counters)
    });
    let mut slots = Slots::new(interrupts);
    rx.owners.into_iter().for_each(|owner| slots.add_rx(owner));
    tx.owners.into_iter().for_each(|owner| slots.add_tx(owner));
    let config = BackendConfig {
        features: offered(uri),
        required_features: 0,
        queue_pairs: options.rx_queues.max(options.tx_queues),
        ..BackendConfig::default()
    };
    let sealing = if uri.trusts_memory() {
        Sealing::Trusted
    } else {
        Sealing::Required
    };
    let endpoint = Endpoint::new(
        &options.name,
        Address::of(path),
        config,
        sealing,
        slots,
        Arc::clone(&status),
    );
    let role = *role;
    let begin: Begin = Box::new(move |reactor| {
        let endpoint = match role {
            Role::Server => endpoint.listen().map_err(|error| error.to_string())?,
            Role::Client => endpoint,
        };
        Ok(add_endpoint(reactor, endpoint))
    });
    let port = PeerPort::new(
        eal.peers(),
        begin,
        status,
        rx.counters,
        tx.counters,
        (options.rx_ring_size, options.tx_ring_size),
    );
    Ok((port, rx.queues, tx.queues))
}

/// Returns the features that a port offers. These never include segmentation of UDP and of TCP with ECN bits.
fn offered(uri: &PortUri) -> u64 {
    let PortUri::Vhost {
        mergeable,
        checksum,
        tso,
        iommu,
        ..
    } = uri
    else {
        return 0;
    };
    let when = |is_on: bool, features: u64| if is_on { features } else { 0 };
    F_VERSION_1
        | F_ANY_LAYOUT
        | F_INDIRECT_DESC
        | F_EVENT_IDX
        | F_RING_PACKED
        | F_LOG_ALL
        | NET_F_MQ
        | NET_F_STATUS
        | NET_F_CTRL_VQ
        | NET_F_CTRL_RX
        | NET_F_GUEST_ANNOUNCE
        | NET_F_GUEST_CSUM
        | when(*mergeable, NET_F_MRG_RXBUF)
        | when(*checksum, NET_F_CSUM)
        | when(
            *tso,
            NET_F_HOST_TSO4 | NET_F_HOST_TSO6 | NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6,
        )
        | when(*iommu, F_ACCESS_PLATFORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_is_offered_if_the_uri_has_it() {
        for uri in [
            "vhost:/v",
            "vhost:/v?checksum=off&mergeable=off",
            "vhost:/v?tso=on",
            "vhost:/v?iommu=on",
        ] {
            let features = offered(&uri.parse().unwrap());
            let has = |feature| features & feature != 0;
            for never in [
                NET_F_HOST_ECN,
                NET_F_HOST_UFO,
                NET_F_GUEST_ECN,
                NET_F_GUEST_UFO,
            ] {
                assert!(!has(never), "{uri}");
            }
            for segmentation in [NET_F_HOST_TSO4, NET_F_HOST_TSO6, NET_F_GUEST_TSO4] {
                assert_eq!(has(segmentation), uri.contains("tso"), "{uri}");
            }
            assert_eq!(has(NET_F_CSUM), !uri.contains("checksum=off"), "{uri}");
            assert_eq!(
                has(NET_F_MRG_RXBUF),
                !uri.contains("mergeable=off"),
                "{uri}"
            );
            assert_eq!(has(F_ACCESS_PLATFORM), uri.contains("iommu"), "{uri}");
        }
    }
}
