// SPDX-License-Identifier: Apache-2.0
//! Results of unpaced trials that measure a rate although the trial is invalid.

use quietwire_tester::{InvalidCause, Validity};
use serde_json::Value;

/// Maximum number of attempts if the tester fails in each trial.
pub(crate) const ATTEMPTS: u32 = 8;

/// Subject of the rate of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A device between the ports of the tester. A frame that the tester missed was forwarded.
    Device,
    /// The tester itself, whose ports are connected to each other. The rate is that of the frames that it received and checked.
    Tester,
}

/// Returns true if a cause of an invalid trial makes losses uncertain, but neither the number of received frames nor their time.
fn is_of_losses(cause: InvalidCause) -> bool {
    match cause {
        InvalidCause::HostStall
        | InvalidCause::RateMissed
        | InvalidCause::Stretched
        | InvalidCause::ReceiveGap
        | InvalidCause::ReceiveDrops => true,
        InvalidCause::RateOutsideWidth
        | InvalidCause::Clock
        | InvalidCause::Excess
        | InvalidCause::LinkLost
        | InvalidCause::NoFrames
        | InvalidCause::Other => false,
    }
}

/// Returns true if an unpaced trial measures a rate, although its losses may be uncertain. With a device, the tester may have missed
/// at most 1 % of what it received.
pub(crate) fn measures_a_rate(result: &Value, subject: Subject) -> bool {
    let validity = serde_json::from_value::<Validity>(result["validity"].clone());
    let are_of_losses = validity.is_ok_and(|validity| {
        let mut reasons = validity.reasons().iter();
        reasons.all(|reason| is_of_losses(reason.cause))
    });
    let received = result["received_frames"].as_u64().unwrap_or(0);
    let health = |key: &str| result["health"][key].as_u64().unwrap_or(u64::MAX);
    let has_missed_few = || {
        health("receive_drops") == 0
            && health("missed_at_most_frames").saturating_mul(100) <= received
    };
    received > 0 && are_of_losses && (subject == Subject::Tester || has_missed_few())
}

/// Returns the tester's reasons for an invalid trial.
pub(crate) fn faults(result: &Value) -> String {
    let found = [&result["validity"], &result["result"]["validity"]];
    found
        .iter()
        .find(|validity| !validity.is_null())
        .map_or_else(|| "invalid".to_owned(), ToString::to_string)
}
