// SPDX-License-Identifier: Apache-2.0
//! The standby side: applies the changes of the active switch.

use std::io::{Read, Write};
use std::time::Instant;

use super::link::{Link, LinkError};
use super::tables::{COMPARE, Tables};
use super::wire::{Digests, Message, WireError};
use crate::error::SwitchError;
use crate::forward::ApplyCounts;

/// Messages in a turn.
const MESSAGES_A_TURN: usize = 32;

/// Names of settings in an error.
const NAMES_MAX: usize = 8;

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
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    Err(StandbyError::Settings(names))
}

/// A stream from the active switch.
#[derive(Debug)]
pub(super) struct Standby<S> {
    link: Link<S>,
    /// Settings of the active switch, and the time of the last comparison with those of this one.
    settings: Digests,
    compared: Instant,
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
        for message in messages {
            match message {
                Message::Configuration(other) => {
                    check(&tables.digests(), &other)?;
                    self.settings = other;
                    self.compared = now;
                    self.is_greeted = true;
                }
                Message::Hello | Message::Heartbeat => {}
                Message::Complete => self.is_complete = true,
                Message::Connections(_) | Message::Mappings { .. } | Message::Balanced { .. } => {
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
        }
        if has_messages && self.is_greeted {
            let last = self.link.received().saturating_sub(1);
            self.link.put(&Message::Acknowledgement(last), now);
        }
        Ok(self.link.flush(now)?)
    }
}
