// SPDX-License-Identifier: Apache-2.0
//! Processing of a port's frames. The control thread builds a stage and never changes it; it publishes a new one instead.

use super::bridge::BridgeStage;
use super::inspect::Boards;
use super::route::RouteStage;
use quietwire_tables::bridge::Storm;
use quietwire_tables::filter::{PortRules, SourceGuard, Steering};

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
    /// Apply source guard and filter rules, then one of the other stages.
    Filtered(Box<FilteredStage>),
    /// Send frames to a tap of the kernel by steering rules, the others to one of the other stages.
    Steered(Box<SteeredStage>),
    /// Read the answers of an inspector.
    Inspector(Boards),
}

/// Source guard and filter rules of a port, and the stage of accepted frames.
#[derive(Debug)]
pub(crate) struct FilteredStage {
    pub(crate) guard: Option<SourceGuard>,
    pub(crate) rules: Option<PortRules>,
    /// Zone of the port's connections.
    pub(crate) zone: u16,
    pub(crate) then: Stage,
}

/// Steering rules of a port, and the stage of frames for the switch.
#[derive(Debug)]
pub(crate) struct SteeredStage {
    pub(crate) rules: Steering,
    /// Number of the port to the kernel.
    pub(crate) kernel: usize,
    pub(crate) then: Stage,
}

impl Stage {
    /// Returns the stage of frames that steering rules leave to the switch.
    pub(super) fn behind_steering(&self) -> &Self {
        match self {
            Self::Steered(stage) => &stage.then,
            stage => stage,
        }
    }

    /// Returns the zone of the port's connections.
    #[inline(always)]
    pub(super) fn zone(&self) -> u16 {
        match self {
            Self::Filtered(stage) => stage.zone,
            _ => 0,
        }
    }

    /// Returns true if there are rules of received frames.
    #[inline(always)]
    pub(super) fn has_rules(&self) -> bool {
        matches!(self, Self::Filtered(stage) if stage.rules.is_some())
    }

    /// Returns the stage of frames that steering rules, source guard and filter rules accept.
    pub(super) fn behind_rules(&self) -> &Self {
        match self.behind_steering() {
            Self::Filtered(stage) => &stage.then,
            stage => stage,
        }
    }

    /// Returns the storm state of the port with full buckets.
    pub(super) fn storm(&self) -> Storm {
        match self {
            Self::Bridge(stage) => stage.storm(),
            Self::Filtered(stage) => stage.then.storm(),
            Self::Steered(stage) => stage.then.storm(),
            _ => Storm::default(),
        }
    }
}
