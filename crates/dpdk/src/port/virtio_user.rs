// SPDX-License-Identifier: Apache-2.0
//! Ports on the guest side of vhost-user, without a guest. They own the memory and the rings. `quietwire_vhost` has messages,
//! sessions and rings.

mod endpoint;
mod rings;

use std::sync::Arc;

use quietwire_vhost::driver::Layout;
use quietwire_vhost::features::*;
use quietwire_vhost::session::frontend::FrontendConfig;

use self::endpoint::{Endpoint, Queues};
pub(crate) use self::rings::{Receiver, Sender};
use super::options::{PortOptions, buffer_size, length_max};
use super::peer::{Begin, PeerPort, Status, add_endpoint, gated_queues};
use super::peers::socket::Address;
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::uri::{PortUri, Role};

type Opened = (PeerPort, Vec<Receiver>, Vec<Sender>);

/// Octets for virtio's header, in a separate cache line before each frame.
const HEADER_SPACE: u32 = 64;
/// Segmentation in both directions, as far as the back end offers it. `vhost` ports of the switch offer that of TCP only.
const SEGMENTATION: u64 = NET_F_HOST_TSO4
    | NET_F_HOST_TSO6
    | NET_F_HOST_USO
    | NET_F_GUEST_TSO4
    | NET_F_GUEST_TSO6
    | NET_F_GUEST_USO4
    | NET_F_GUEST_USO6;

/// Opens a port. It listens or connects after its start.
pub(super) fn open(
    eal: &Eal,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
) -> Result<Opened, Error> {
    let wrong = |what: String| Error::PortOptions {
        port: options.name.clone(),
        what,
    };
    let PortUri::VirtioUser {
        path, role, packed, ..
    } = uri
    else {
        return Err(wrong(format!("{uri} is not a virtio-user port")));
    };
    let status = Arc::new(Status::default());
    let limit = length_max(options);
    let pairs = options.rx_queues.max(options.tx_queues);
    let layout = Layout::new(
        pairs,
        options.rx_ring_size,
        options.tx_ring_size,
        u32::from(buffer_size(options)).saturating_add(HEADER_SPACE),
        *packed,
    )
    .map_err(|error| wrong(error.to_string()))?;
    let rx = gated_queues(options.rx_queues, |reader, counters| {
        Receiver::new(reader, pool.clone(), limit, counters)
    });
    let tx = gated_queues(options.tx_queues, |reader, counters| {
        Sender::new(reader, Arc::clone(&status), counters)
    });
    let queues = Queues {
        rx: rx.owners,
        tx: tx.owners,
    };
    let (required_features, features) = requested(uri, options.uses_card_offloads);
    let config = FrontendConfig {
        features,
        required_features,
        queue_pairs: pairs,
        ..FrontendConfig::default()
    };
    let endpoint = Endpoint::new(
        &options.name,
        Address::of(path),
        config,
        layout,
        eal.memory(),
        queues,
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

/// Returns the features that a port requires, and those that it uses if the back end offers them.
fn requested(uri: &PortUri, uses_offloads: bool) -> (u64, u64) {
    let PortUri::VirtioUser {
        mergeable,
        packed,
        checksum,
        tso,
        ..
    } = uri
    else {
        return (0, 0);
    };
    let when = |is_on: bool, features: u64| if is_on { features } else { 0 };
    let has_segmentation = *tso && uses_offloads;
    // A large frame lies in several receive buffers.
    let required =
        F_VERSION_1 | when(*packed, F_RING_PACKED) | when(has_segmentation, NET_F_MRG_RXBUF);
    let used = F_EVENT_IDX
        | NET_F_MQ
        | when(*mergeable, NET_F_MRG_RXBUF)
        | when(*checksum && uses_offloads, NET_F_CSUM | NET_F_GUEST_CSUM)
        | when(has_segmentation, SEGMENTATION);
    (required, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_requested_if_the_uri_has_them_and_the_program_uses_them() {
        const CHECKSUMS: u64 = NET_F_CSUM | NET_F_GUEST_CSUM;
        const USUAL: u64 = F_EVENT_IDX | NET_F_MQ;
        for (text, uses_offloads, required, used) in [
            ("virtio-user:/v", true, 0, USUAL),
            (
                "virtio-user:/v?packed=on&mergeable=on",
                true,
                F_RING_PACKED,
                USUAL | NET_F_MRG_RXBUF,
            ),
            ("virtio-user:/v?checksum=on", true, 0, USUAL | CHECKSUMS),
            (
                "virtio-user:/v?tso=on",
                true,
                NET_F_MRG_RXBUF,
                USUAL | NET_F_MRG_RXBUF | CHECKSUMS | SEGMENTATION,
            ),
            ("virtio-user:/v?tso=on", false, 0, USUAL | NET_F_MRG_RXBUF),
        ] {
            let features = requested(&text.parse().unwrap(), uses_offloads);
            assert_eq!(features, (F_VERSION_1 | required, used), "{text}");
        }
    }
}
