// SPDX-License-Identifier: Apache-2.0
//! Inspection of the first packets of flows by a program behind a port: an inspector.
//!
//! The thread holds a packet and sends a copy of it to the inspector, which answers with a verdict on the packet or on the flow. So no packet
//! passes before its verdict, as with a queue of the kernel (nft(8), `queue`; NFQUEUE). The inspector gets copies and returns numbers only:
//! it cannot change or insert packets, and a packet that it loses is not lost.
//!
//! | module | contents |
//! |---|---|
//! | [`Query`], [`Answer`] | the frames between switch and inspector |
//! | [`Board`] | verdicts of a forwarding thread's flows, written by the thread that receives from the inspector |
//! | [`InspectFlows`] | flows of a forwarding thread: which packets wait, pass or are dropped |
//!
//! # Bounds
//!
//! [`InspectFlows`] has [`INSPECT_FLOWS`] flows of a forwarding thread, allocated once. A flood of flows replaces those without a decision
//! first. A flow that was replaced is inspected again. At most [`FLOW_PACKETS_MAX`] packets of a flow wait. The caller bounds those of all.

mod board;
mod flows;
mod frame;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use board::{Board, INSPECT_FLOWS, NoInspectFlows};
pub use flows::{FLOW_PACKETS_MAX, HeldPacket, InspectFlows, Ruling};
pub use frame::{Answer, INSPECT_ETHERTYPE, INSPECT_HEADER, Judgement, Query, Ticket};

/// Most packets of a flow that a rule sends to an inspector.
pub const INSPECT_PACKETS_MAX: u8 = 64;
/// Longest timeout of a verdict, milliseconds.
pub const INSPECT_TIMEOUT_MAX_MS: u16 = 10_000;

/// Action of a rule on packets of a flow on which the inspector has not decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InspectFail {
    /// Drop them.
    #[default]
    Closed,
    /// Accept them.
    Open,
}

impl InspectFail {
    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }
}

/// Inspection by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// Number of the inspector's port.
    pub port: u16,
    /// Packets of a flow that the inspector gets, of both directions.
    pub packets: u8,
    /// Longest time until a verdict, milliseconds.
    pub timeout_ms: u16,
    /// For packets without a verdict.
    pub fail: InspectFail,
}
