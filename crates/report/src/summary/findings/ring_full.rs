// SPDX-License-Identifier: Apache-2.0
//! Rule: frames found a receive ring of the device full.

use quietwire_tester::account::LossReason;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Share of the lost frames from which on a ring is the main place of loss.
const SHARE_MIN: f64 = 0.5;
/// Lost frames below which a single interruption explains the loss.
const LOST_MIN: u64 = 100;

/// Reports the receive ring that refused most frames.
pub(super) fn ring_full(data: &CaseData<'_>) -> Option<MachineFinding> {
    let worst = data
        .losses
        .iter()
        .filter(|account| account.lost_frames >= LOST_MIN)
        .flat_map(|account| {
            account
                .places
                .iter()
                .map(|place| (place, account.lost_frames))
        })
        .filter(|(place, _)| place.reason == LossReason::ReceiveRingFull.name())
        .max_by_key(|(place, _)| place.frames)?;
    let (place, lost_frames) = worst;
    let share = place.frames as f64 / lost_frames as f64;
    if share < SHARE_MIN {
        return None;
    }
    let text = format!(
        "{} of {} lost frames found the receive ring of {} {} full: its forwarding thread did not empty it in time.",
        format::grouped(place.frames),
        format::grouped(lost_frames),
        place.element,
        place.port
    );
    let cure = "keep other threads off the forwarding CPU if it was interrupted, or enlarge the ring (`rx-ring-size` in [device])";
    Some(MachineFinding::new("ring-full", data.case, text, cure))
}

#[cfg(test)]
mod tests {
    use quietwire_tester::account::{LossAccount, LossPlace};

    use super::super::tests::data;
    use super::*;

    fn account(reason: LossReason, frames: u64, lost_frames: u64) -> LossAccount {
        LossAccount {
            lost_frames,
            places: vec![LossPlace {
                element: "S".to_owned(),
                port: "p0".to_owned(),
                reason: reason.name().to_owned(),
                frames,
            }],
            ..LossAccount::default()
        }
    }

    fn found(account: &LossAccount) -> Option<MachineFinding> {
        let mut data = data(&[]);
        data.losses.push(account);
        ring_full(&data)
    }

    #[test]
    fn a_ring_that_refused_most_of_the_lost_frames_is_reported() {
        let full = LossReason::ReceiveRingFull;
        let text = found(&account(full, 1500, 2000)).unwrap().text;
        assert!(text.contains("of S p0 full"), "{text}");
        for (reason, frames, lost) in [
            (full, 900, 2000),
            (full, 99, 99),
            (LossReason::NotSent, 2000, 2000),
        ] {
            assert_eq!(
                found(&account(reason, frames, lost)),
                None,
                "{reason:?} {frames}"
            );
        }
        assert_eq!(ring_full(&data(&[])), None);
    }
}
