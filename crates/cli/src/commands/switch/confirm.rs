// SPDX-License-Identifier: Apache-2.0
//! Changes of filter rules and sets that the switch rolls back without a confirmation.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::exit::Usage;
use crate::units::parse_duration;

/// Time for the confirmation of a change.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct ConfirmArgs {
    /// Return to the former rules and sets unless `rules confirm` runs within this time, such as 60s, at most 24 h. Default: never
    /// return.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    confirm: Option<Duration>,
}

impl ConfirmArgs {
    /// Returns the time for the confirmation, seconds, if the change requires one.
    ///
    /// # Errors
    /// The time is not a whole number of seconds, or 0.
    pub(super) fn seconds(self) -> Result<Option<u32>> {
        self.confirm.map(whole_seconds).transpose()
    }
}

/// Reports how long a change is in force without a confirmation.
pub(super) fn note_time(confirm_s: u32) {
    tracing::info!(
        "the change is in force for {confirm_s} s (run `quietwire switch rules confirm` to keep it)"
    );
}

fn whole_seconds(time: Duration) -> Result<u32> {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    if time.subsec_nanos() != 0 || seconds == 0 {
        return Err(Usage("--confirm requires whole seconds, at least 1s".to_owned()).into());
    }
    Ok(seconds)
}
