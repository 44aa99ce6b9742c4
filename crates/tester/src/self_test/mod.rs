// SPDX-License-Identifier: Apache-2.0
//! A test of the tester's accounting: a device misbehaves by a script, frame by frame, and keeps a ledger. The figures of
//! the tester are compared with it.
//!
//! The device is a process of its own ([`serve_device`]), connected by two ports. It shares with the tester only the codec of
//! the signature and the clock.

mod case;
mod compare;
mod desk;
mod device;
mod ledger;
mod line;
mod link;
mod script;

pub use case::{Case, CaseReport, SelfTestOptions};
pub use compare::{Figure, Verdict};
pub use device::{DeviceOptions, serve_device};
pub use ledger::{Ledger, Tally};
pub use link::DeviceLink;
pub use script::{Action, Choice, Fault, Rule, Script};
