// SPDX-License-Identifier: Apache-2.0
//! Methods for stateful devices, which open connections through them (RFC 9411, section 7, over the tester's own TCP conversations).

mod concurrent;
mod keys;
mod latency;
mod per_second;
mod search;
mod throughput;
mod transactions;

use quietwire_tester::connections::{ClientSide, Connections};

pub use concurrent::ConcurrentConnectionsPlan;
pub use latency::TransactionLatencyPlan;
pub use per_second::ConnectionsPerSecondPlan;
pub use throughput::ConnectionThroughputPlan;
pub use transactions::TransactionsPerSecondPlan;

/// Addresses of the clients without `[connections]`: enough endpoints for a million connections.
const CLIENT_ADDRESSES: u32 = 16;
/// Shortest time in which connections may end after the load, seconds.
pub(crate) const DRAIN_S_MIN: f64 = 2.0;

/// Returns the description of the connections of a study without `[connections]`.
pub(crate) fn usual_connections() -> Connections {
    Connections {
        client: ClientSide {
            count: CLIENT_ADDRESSES,
            ..ClientSide::default()
        },
        ..Connections::default()
    }
}
