// SPDX-License-Identifier: Apache-2.0
//! Losses of the tester itself, distinguished from those of the device by the result.

use serde_json::Value;

/// Returns true if the tester itself may have lost frames of a trial: its ports dropped some, or its receive rings may have
/// been full. The latter counts under `host-stall` if the host took the CPU from the tester. No other cause loses a frame.
pub(crate) fn is_testers_own_loss(result: &Value) -> bool {
    let reasons = result["validity"]["reasons"].as_array();
    let was_full = result["health"]["missed_at_most_frames"].as_u64() > Some(0);
    reasons.into_iter().flatten().any(|reason| {
        let cause = reason["cause"].as_str().unwrap();
        match cause {
            "receive-gap" | "receive-drops" => true,
            "host-stall" => was_full,
            _ => false,
        }
    })
}
