// SPDX-License-Identifier: Apache-2.0
//! Self-test of the tester's accounting: a device misbehaves by a script, frame by frame, and keeps a ledger. The tester's figures are
//! compared with the ledger.
//!
//! The device is a separate process ([`serve_device`]), connected by two ports. It shares only the codec of the signature and the clock
//! with the tester.
//!
//! For connections, the device is a stateful one that mistreats some of them.

mod case;
mod compare;
mod connection_device;
mod connections;
mod device;
mod ledger;
mod line;
mod link;
mod processor;
mod script;

pub use case::{Case, CaseReport, SelfTestOptions};
pub use compare::{Figure, Verdict};
pub use connection_device::{
    ConnectionFault, ConnectionLedger, ConnectionScript, LedgerConnection,
};
pub use connections::{ConnectionCaseReport, ConnectionSelfTestOptions};
pub use device::{DeviceOptions, serve_device};
pub use ledger::{Ledger, Tally};
pub use link::DeviceLink;
pub use script::{Action, Choice, Fault, Rule, Script};
