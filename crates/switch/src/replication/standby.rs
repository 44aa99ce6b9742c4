// SPDX-License-Identifier: Apache-2.0
//! The standby side: applies the changes of the active switch.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Instant;

use super::link::{Link, LinkError};
use super::tables::{COMPARE, Tables};
use super::wire::{Digests, Limits, Message, NO_LIMIT, WireError};
use crate::error::SwitchError;
use crate::forward::ApplyCounts;

/// Messages in a turn.
const MESSAGES_A_TURN: usize = 32;

/// Names of settings in an error, and limits in a report.
const NAMES_MAX: usize = 8;
/// Maximum number of limits of the active switch. Further ones are not compared.
const LIMITS_MAX: usize = 4096;

/// Reason for ending the stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum StandbyError {
    /// The stream has ended.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The changes cannot be applied.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// Names of settings that differ, at most [`NAMES_MAX`] and the number of others.
    #[error("the active switch has other settings: {} (make them equal on both switches)", .0.join(", "))]
    Settings(Vec<String>),
}

/// Checks that the settings of the active switch are those of this one.
fn check(own: &[(String, u32)], other: &[(String, u32)]) -> Result<(), StandbyError> {
    let differing = |own: &[(String, u32)], other: &[(String, u32)]| -> Vec<String> {
        let differing = own.iter().filter(|one| !other.contains(one));
        differing.map(|(name, _)| name.clone()).collect()
    };
    let mut names = differing(own, other);
    names.extend(differing(other, own));
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    Err(StandbyError::Settings(shortened(names)))
}

/// Returns the first [`NAMES_MAX`] names, and the number of others.
fn shortened(mut names: Vec<String>) -> Vec<String> {
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names
}

/// Returns the limits of this switch that are lower than those of the active one, with both values. Entries beyond them would be lost.
fn lower_limits(own: &[(String, u32)], active: &[(String, u32)]) -> Vec<String> {
    let own: BTreeMap<&str, u32> = own.iter().map(|(name, value)| (&**name, *value)).collect();
    let lower = active.iter().filter_map(|(name, value)| {
        let limit = own.get(&**name).filter(|limit| *limit < value)?;
        let other = match *value {
            NO_LIMIT => "no limit".to_owned(),
            value => value.to_string(),
        };
        Some(format!("{name} {limit} (active switch: {other})"))
    });
    shortened(lower.collect())
}

/// A stream from the active switch.
#[derive(Debug)]
pub(super) struct Standby<S> {
    link: Link<S>,
    /// Settings of the active switch, and the time of the last comparison with those of this one.
    settings: Digests,
    compared: Instant,
    /// Limits of the active switch.
    limits: Limits,
    /// Limits that are lower than those, once they have arrived.
    pub(super) lower_limits: Option<Vec<String>>,
    /// The active switch has answered, and has the settings of this one.
    pub(super) is_greeted: bool,
    /// All entries have arrived.
    pub(super) is_complete: bool,
}

impl<S: Read + Write> Standby<S> {
    pub(super) fn new(stream: S, now: Instant) -> Self {
        Self {
            link: Link::new(stream, now),
            settings: Digests::new(),
            compared: now,
            limits: Limits::new(),
            lower_limits: None,
            is_greeted: false,
            is_complete: false,
        }
    }

    /// Applies what has arrived, and acknowledges it. Adds to `counts`.
    ///
    /// # Errors
    /// [`StandbyError`]: the stream has ended. A new one begins with all entries.
    pub(super) fn turn(
        &mut self,
        tables: &mut impl Tables,
        counts: &mut ApplyCounts,
        now: Instant,
    ) -> Result<(), StandbyError> {
        let messages = self.link.receive(MESSAGES_A_TURN, now)?;
        let has_messages = !messages.is_empty();
        let mut has_limits = false;
        for message in messages {
            match message {
                Message::Configuration(other) => {
                    check(&tables.digests(), &other)?;
                    self.settings = other;
                    self.compared = now;
                    self.is_greeted = true;
                    // Those of this configuration follow.
                    self.limits.clear();
                }
                Message::Limits(limits) => {
                    let space = LIMITS_MAX.saturating_sub(self.limits.len());
                    self.limits.extend(limits.into_iter().take(space));
                    has_limits = true;
                }
                Message::Hello | Message::Heartbeat => {}
                // The settings come first: entries of a switch with other ones must not change the tables.
                _ if !self.is_greeted => return Err(LinkError::from(WireError::Role).into()),
                Message::Complete => self.is_complete = true,
                Message::Connections(_)
                | Message::Mappings { .. }
                | Message::MappingsIpv6 { .. }
                | Message::Balanced { .. }
                | Message::BalancedIpv6 { .. } => {
                    counts.add(&tables.apply(message)?);
                }
                Message::Acknowledgement(_) => {
                    return Err(LinkError::from(WireError::Role).into());
                }
            }
        }
        // Those of this switch may have changed.
        if self.is_greeted && now.saturating_duration_since(self.compared) >= COMPARE {
            check(&tables.digests(), &self.settings)?;
            self.compared = now;
            has_limits |= self.lower_limits.is_some();
        }
        if has_limits {
            self.lower_limits = Some(lower_limits(&tables.limits(), &self.limits));
        }
        if has_messages && self.is_greeted {
            let last = self.link.received().saturating_sub(1);
            self.link.put(&Message::Acknowledgement(last), now);
        }
        Ok(self.link.flush(now)?)
    }
}
