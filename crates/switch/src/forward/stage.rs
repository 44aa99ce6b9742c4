// SPDX-License-Identifier: Apache-2.0
//! Processing of a port's frames. The control thread builds a stage and never changes it; it publishes a new one instead.

use super::bridge::BridgeStage;
use super::route::RouteStage;
use quietwire_tables::bridge::Storm;
use quietwire_tables::filter::PortRules;

/// Processing of a receive queue's frames.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Drop and count all frames.
    Drop,
    /// Forward all frames to one port.
    CrossConnect {
        /// Number of the port.
        output: usize,
    },
    /// Bridge the frames.
    Bridge(BridgeStage),
    /// Route the frames.
    Route(RouteStage),
    /// Apply filter rules, then one of the other stages.
    Filtered(Box<FilteredStage>),
}

/// Filter rules of a port, and the stage of accepted frames.
#[derive(Debug)]
pub(crate) struct FilteredStage {
    pub(crate) rules: PortRules,
    pub(crate) then: Stage,
}

impl Stage {
    /// Returns the storm state of the port with full buckets.
    pub(super) fn storm(&self) -> Storm {
        match self {
            Self::Bridge(stage) => stage.storm(),
            Self::Filtered(stage) => stage.then.storm(),
            _ => Storm::default(),
        }
    }
}
