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
        path,
        role,
        mergeable,
        packed,
        ..
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
    let tx = gated_queues(options.tx_queues, Sender::new);
    let queues = Queues {
        rx: rx.owners,
        tx: tx.owners,
    };
    let when = |is_on: bool, features: u64| if is_on { features } else { 0 };
    let kind = when(*packed, F_RING_PACKED);
    let config = FrontendConfig {
        features: F_EVENT_IDX | NET_F_MQ | when(*mergeable, NET_F_MRG_RXBUF),
        required_features: F_VERSION_1 | kind,
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
