// SPDX-License-Identifier: Apache-2.0
//! Fast path of bridges without VLANs, limits, groups and interfaces.

use quietwire_base::BURST_MAX;

use super::addresses::{Addresses, Hashes};
use super::decision::{Decision, Decisions, Tally};
use crate::drops::PortDrop;
use crate::fdb::{Fdb, Now};

/// Decides on a burst received on port `input` at second `now_s` and learns its source addresses. Frames beyond [`BURST_MAX`] are ignored.
/// `decisions` is overwritten. For bridges without VLANs, limits, groups and interfaces. All addresses in `fdb` must be on ports of the
/// bridge: the caller flushes a port's addresses ([`Fdb::flush`]) and static entries when it removes the port.
///
/// Two passes: the first hashes all addresses and prefetches their buckets, the second finds them in the cache.
#[inline]
pub fn decide<'frame>(
    fdb: &Fdb,
    input: u16,
    now_s: u32,
    frames: impl Iterator<Item = &'frame [u8]>,
    decisions: &mut Decisions,
) -> Tally {
    let now = fdb.now(now_s);
    let none = Hashes::new(fdb, 0, Addresses::NONE);
    let mut addresses = [Addresses::NONE; BURST_MAX];
    let mut hashes = [none; BURST_MAX];
    let mut count = 0_usize;
    let mut last = (Addresses::NONE, none);
    for ((frame, addresses), hashes) in frames.zip(&mut addresses).zip(&mut hashes) {
        *addresses = Addresses::read(frame);
        // Frames of one flow arrive in runs.
        if *addresses != last.0 {
            last = (*addresses, Hashes::new(fdb, 0, *addresses).prefetch(fdb));
        }
        *hashes = last.1;
        // At most BURST_MAX.
        count = count.wrapping_add(1);
    }

    decisions.clear();
    let mut tally = Tally::default();
    let mut last = (Addresses::NONE, Decision::Drop(PortDrop::Short));
    for (addresses, hashes) in addresses.iter().zip(&hashes).take(count) {
        // A frame with the same addresses as the previous one needs no learning and has the same decision.
        if *addresses == last.0 && !decisions.as_slice().is_empty() {
            decisions.push_again(last.1);
        } else {
            last = (
                *addresses,
                decide_one(fdb, input, now, *addresses, *hashes, &mut tally),
            );
            decisions.push(last.1);
        }
        tally.count(last.1);
    }
    tally
}

#[inline(always)]
fn decide_one(
    fdb: &Fdb,
    input: u16,
    now: Now,
    addresses: Addresses,
    hashes: Hashes,
    tally: &mut Tally,
) -> Decision {
    if addresses == Addresses::NONE {
        return Decision::Drop(PortDrop::Short);
    }
    // Frames to reserved addresses are not learned from either.
    if addresses.is_reserved() {
        return Decision::Drop(PortDrop::ReservedAddress);
    }
    if addresses.has_station() {
        tally.count_learned(fdb.learn(hashes.source, input, now, u32::MAX));
    }
    if addresses.is_to_group() {
        return Decision::Flood;
    }
    match fdb.look_up(hashes.destination, now) {
        Some(port) if port == input => Decision::Drop(PortDrop::Filtered),
        Some(port) => Decision::Forward(port),
        None => Decision::Flood,
    }
}
