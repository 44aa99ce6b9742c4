// SPDX-License-Identifier: Apache-2.0
//! Addresses of networks for the whole cluster: each one that a pod has is an `Address` in the API server, whose name only one object can
//! have. The CNI plugin asks the agent of its node through a Unix socket, so that it needs no credentials.

mod book;
#[cfg(test)]
mod fuzz;
mod pool;
mod protocol;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use book::Book;
pub(crate) use protocol::{AskError, Holder, NetworkName, Request, ask};
pub(crate) use server::serve;

/// Socket of the agent for addresses.
pub(crate) const SOCKET: &str = "/run/quietwire/addresses/agent.sock";
