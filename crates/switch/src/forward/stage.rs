// SPDX-License-Identifier: Apache-2.0
//! What is done with the frames of a port. Made by the control thread, never changed: another takes its place.

use super::bridge::BridgeStage;
use super::route::RouteStage;
use quietwire_tables::bridge::Storm;
use quietwire_tables::filter::PortRules;

/// What is done with the frames of a receive queue.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Nothing: they are dropped and counted.
    Drop,
    /// All go out of one port.
    CrossConnect {
        /// Its number.
        output: usize,
    },
    /// They are bridged.
    Bridge(BridgeStage),
    /// They are routed.
    Route(RouteStage),
    /// One of the others, with those frames that the port's rules let in.
    Filtered(Box<FilteredStage>),
}

/// A port's rules, and what is done with the frames that they let in.
#[derive(Debug)]
pub(crate) struct FilteredStage {
    pub(crate) rules: PortRules,
    pub(crate) then: Stage,
}

impl Stage {
    /// The limits of a queue's port with nothing used up yet.
    pub(super) fn storm(&self) -> Storm {
        match self {
            Self::Bridge(stage) => stage.storm(),
            Self::Filtered(stage) => stage.then.storm(),
            _ => Storm::default(),
        }
    }
}
