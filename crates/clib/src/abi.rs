// SPDX-License-Identifier: Apache-2.0
//! Exported functions: `include/quietwire.h`, which documents them for C.
//!
//! The only module of this crate with unsafe code. Each function checks its arguments, copies descriptors into memory of its own, calls
//! safe code, and copies results back at the end. So input and output may even overlap. No panic leaves a function.
//!
//! # Safety
//!
//! All exported functions that are unsafe require the same of the caller, as every function of C does: a pointer that is neither null nor
//! marked as optional leads to as many values as the function reads or writes, and `data` of a packet to `data_length` octets, none of
//! which another thread changes until the function returns.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use quietwire_base::BURST_MAX;
use quietwire_tables::filter::RULES_MAX;

use crate::classifier::{Classifier, Frame};
use crate::handle::{self, Kind, Object};
use crate::layout::{
    ConnectionRecord, CtRuleDescriptor, LabelRecord, PacketDescriptor, RuleDescriptor,
    TrackerCounters, TrackerSettings, VerdictRecord,
};
use crate::status::Status;
use crate::tracker::{ConnectionTable, SECONDS_MAX};

/// Number of the binary interface: `QW_ABI_VERSION`. A program that was compiled against another number must not use the library.
pub const ABI_VERSION: u32 = 1;
/// Version of quietwire.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
/// Most connections of a page.
const PAGE_MAX: usize = 4096;

/// Calls a function and returns its status. A panic ends here. The lock of an object that was in use remembers it.
fn guarded(call: impl FnOnce() -> Result<(), Status>) -> c_int {
    let status = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(status)) => status,
        Err(_) => Status::Internal,
    };
    status as c_int
}

/// Checks a pointer, as far as that is possible.
fn check<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Status::Pointer);
    }
    Ok(())
}

/// Returns the values of a pointer, which may be anything if there are none.
///
/// # Safety
/// See the module.
unsafe fn list<'values, T>(first: *const T, count: usize) -> Result<&'values [T], Status> {
    if count == 0 {
        return Ok(&[]);
    }
    check(first)?;
    // SAFETY: the pointer was checked, and the caller promises `count` values that no thread changes meanwhile.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

fn check_time(now_s: u32) -> Result<(), Status> {
    if now_s > SECONDS_MAX {
        return Err(Status::Argument);
    }
    Ok(())
}

/// Pointer to the result of a function.
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn required(pointer: *mut T) -> Result<Self, Status> {
        check(pointer.cast_const())?;
        Ok(Self(pointer))
    }

    /// Returns the object of a pointer, or none for null: the caller does not want this result.
    fn optional(pointer: *mut T) -> Result<Option<Self>, Status> {
        if pointer.is_null() {
            return Ok(None);
        }
        Self::required(pointer).map(Some)
    }

    /// Stores a result.
    ///
    /// # Safety
    /// See the module.
    unsafe fn set(self, value: T) {
        // SAFETY: the pointer was checked, and the caller promises that it leads to a value.
        unsafe { self.0.write(value) };
    }
}

/// Packets of a burst: copies of their descriptors.
struct Burst {
    packets: [PacketDescriptor; BURST_MAX],
    count: usize,
}

impl Burst {
    /// Copies and checks descriptors.
    ///
    /// # Safety
    /// See the module.
    unsafe fn read(packets: *const PacketDescriptor, count: usize) -> Result<Self, Status> {
        if count > BURST_MAX {
            return Err(Status::Size);
        }
        let mut burst = Self {
            packets: [PacketDescriptor::EMPTY; BURST_MAX],
            count,
        };
        if count > 0 {
            check(packets)?;
            // SAFETY: the caller promises `count` descriptors; there is space for `BURST_MAX`, and the copy is new memory.
            unsafe { ptr::copy_nonoverlapping(packets, burst.packets.as_mut_ptr(), count) };
        }
        for packet in burst.packets.iter().take(count) {
            if packet.data.is_null() && packet.data_length > 0 {
                return Err(Status::Pointer);
            }
            if packet.data_length > packet.frame_length || packet.reserved != [0; 3] {
                return Err(Status::Argument);
            }
        }
        Ok(burst)
    }

    /// Returns the frames of the packets, and empty ones behind them.
    ///
    /// # Safety
    /// See the module.
    unsafe fn frames(&self) -> [Frame<'_>; BURST_MAX] {
        let mut frames = [Frame::EMPTY; BURST_MAX];
        for (frame, packet) in frames.iter_mut().zip(&self.packets) {
            let octets: &[u8] = match packet.data_length {
                0 => &[],
                length => {
                    let data = packet.data.cast::<u8>();
                    // SAFETY: the pointer is not null, and the caller promises so many octets that no thread changes meanwhile. Octets
                    // need no alignment.
                    unsafe { slice::from_raw_parts(data, length as usize) }
                }
            };
            *frame = Frame {
                octets,
                length: packet.frame_length,
                zone: packet.zone,
            };
        }
        frames
    }
}

/// Calls a function with the frames of a burst and a record for each, and stores the records.
///
/// # Safety
/// See the module.
unsafe fn with_burst(
    packets: *const PacketDescriptor,
    count: usize,
    verdicts: *mut VerdictRecord,
    call: impl FnOnce(&[Frame<'_>], &mut [VerdictRecord]) -> Result<(), Status>,
) -> Result<(), Status> {
    // SAFETY: this function requires the same.
    let burst = unsafe { Burst::read(packets, count) }?;
    if count > 0 {
        check(verdicts.cast_const())?;
    }
    // SAFETY: this function requires the same.
    let frames = unsafe { burst.frames() };
    let frames = frames.get(..burst.count).unwrap_or_default();
    let mut records = [VerdictRecord::DROP; BURST_MAX];
    call(frames, &mut records)?;
    if count > 0 {
        // SAFETY: the caller promises space for `count` records, the pointer was checked, and the records are not in the caller's memory.
        unsafe { ptr::copy_nonoverlapping(records.as_ptr(), verdicts, count) };
    }
    Ok(())
}

/// Returns [`ABI_VERSION`].
#[unsafe(no_mangle)]
pub extern "C" fn qw_abi_version() -> u32 {
    ABI_VERSION
}

/// Returns the version of quietwire, as text.
#[unsafe(no_mangle)]
pub extern "C" fn qw_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the text of a status.
#[unsafe(no_mangle)]
pub extern "C" fn qw_status_text(status: c_int) -> *const c_char {
    Status::text_of(status).as_ptr()
}

/// Compiles rules. `wrong_rule` is optional: the number of the first rule that is refused, or `SIZE_MAX`.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_classifier_create(
    rules: *const RuleDescriptor,
    count: usize,
    default_action: u32,
    flags: u32,
    classifier: *mut u64,
    wrong_rule: *mut usize,
) -> c_int {
    // SAFETY: this function requires the same; there are no marks and labels.
    unsafe {
        qw_classifier_create_ct(
            rules,
            ptr::null(),
            count,
            default_action,
            flags,
            classifier,
            wrong_rule,
        )
    }
}

/// Compiles rules that compare or set marks and labels of connections: `rule_values` has those of each rule, or is null.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_classifier_create_ct(
    rules: *const RuleDescriptor,
    rule_values: *const CtRuleDescriptor,
    count: usize,
    default_action: u32,
    flags: u32,
    classifier: *mut u64,
    wrong_rule: *mut usize,
) -> c_int {
    guarded(|| {
        let to = Out::required(classifier)?;
        let wrong = Out::optional(wrong_rule)?;
        if count > RULES_MAX {
            return Err(Status::Size);
        }
        // SAFETY: this function requires the same.
        let rules = unsafe { list(rules, count) }?;
        let values = match rule_values.is_null() {
            true => Ok(&[][..]),
            // SAFETY: this function requires the same.
            false => unsafe { list(rule_values, count) },
        }?;
        let made = Classifier::new(rules, values, default_action, flags);
        let number = made.as_ref().err().and_then(|error| error.rule);
        if let Some(wrong) = wrong {
            // SAFETY: this function requires the same.
            unsafe { wrong.set(number.unwrap_or(usize::MAX)) };
        }
        let made = made.map_err(|error| error.status)?;
        let handle = handle::insert(Object::Classifier(Box::new(made)))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(handle) };
        Ok(())
    })
}

/// Returns another handle of the same rules, for another thread. Both handles are destroyed, in any order.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_classifier_share(classifier: u64, shared: *mut u64) -> c_int {
    guarded(|| {
        let to = Out::required(shared)?;
        let copy = handle::with_classifier(classifier, |rules| Ok(rules.clone()))?;
        let handle = handle::insert(Object::Classifier(Box::new(copy)))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(handle) };
        Ok(())
    })
}

/// Destroys a handle of rules.
#[unsafe(no_mangle)]
pub extern "C" fn qw_classifier_destroy(classifier: u64) -> c_int {
    guarded(|| handle::remove(classifier, Kind::Classifier))
}

/// Reads the frames of the first `capacity` rules; the number of rules; the frames that no rule matched, and the malformed ones. All three
/// are optional.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_classifier_counts(
    classifier: u64,
    counts: *mut u64,
    capacity: usize,
    rules: *mut usize,
    others: *mut [u64; 2],
) -> c_int {
    guarded(|| {
        let first = Out::optional(counts)?;
        let (rules, others) = (Out::optional(rules)?, Out::optional(others)?);
        let (list, unmatched) = handle::with_classifier(classifier, |one| {
            let mut list = vec![0; one.counts(&mut [])];
            one.counts(&mut list);
            Ok((list, one.other_counts()))
        })?;
        if let Some(first) = first {
            let count = list.len().min(capacity);
            // SAFETY: the pointer was checked, the caller promises space for `capacity` numbers, and the list is new memory.
            unsafe { ptr::copy_nonoverlapping(list.as_ptr(), first.0, count) };
        }
        if let Some(rules) = rules {
            // SAFETY: this function requires the same.
            unsafe { rules.set(list.len()) };
        }
        if let Some(others) = others {
            // SAFETY: this function requires the same.
            unsafe { others.set(unmatched) };
        }
        Ok(())
    })
}

/// Judges a burst by rules, as untracked packets.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_classify(
    classifier: u64,
    packets: *const PacketDescriptor,
    count: usize,
    verdicts: *mut VerdictRecord,
) -> c_int {
    guarded(|| {
        let call = |frames: &[Frame<'_>], records: &mut [VerdictRecord]| {
            handle::with_classifier(classifier, |rules| {
                let judged = rules.judge(frames, &[], &[]);
                for (verdict, record) in judged.into_iter().zip(records).take(frames.len()) {
                    *record = rules.record(verdict);
                }
                Ok(())
            })
        };
        // SAFETY: this function requires the same.
        unsafe { with_burst(packets, count, verdicts, call) }
    })
}

/// Creates a tracker, with all of its memory.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_tracker_create(
    settings: *const TrackerSettings,
    tracker: *mut u64,
) -> c_int {
    guarded(|| {
        let to = Out::required(tracker)?;
        check(settings)?;
        // SAFETY: the pointer was checked, and the caller promises settings that no thread changes meanwhile.
        let settings = unsafe { settings.read() };
        let table = ConnectionTable::new(&settings)?;
        let handle = handle::insert(Object::Tracker(Box::new(table)))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(handle) };
        Ok(())
    })
}

/// Destroys a tracker and its connections.
#[unsafe(no_mangle)]
pub extern "C" fn qw_tracker_destroy(tracker: u64) -> c_int {
    guarded(|| handle::remove(tracker, Kind::Tracker))
}

/// Tracks a burst and creates no connections.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_track(
    tracker: u64,
    packets: *const PacketDescriptor,
    count: usize,
    now_s: u32,
    verdicts: *mut VerdictRecord,
) -> c_int {
    guarded(|| {
        check_time(now_s)?;
        let call = |frames: &[Frame<'_>], records: &mut [VerdictRecord]| {
            handle::with_tracker(tracker, |table| {
                table.track(frames, now_s, records);
                Ok(())
            })
        };
        // SAFETY: this function requires the same.
        unsafe { with_burst(packets, count, verdicts, call) }
    })
}

/// Creates the connections of the packets that [`qw_track`] found new and without connection, and whose verdicts accept them. Refused
/// packets get a verdict that drops them.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_commit(
    tracker: u64,
    packets: *const PacketDescriptor,
    count: usize,
    now_s: u32,
    verdicts: *mut VerdictRecord,
) -> c_int {
    guarded(|| {
        check_time(now_s)?;
        if count > BURST_MAX {
            return Err(Status::Size);
        }
        let mut before = [VerdictRecord::DROP; BURST_MAX];
        if count > 0 {
            check(verdicts.cast_const())?;
            // SAFETY: the pointer was checked, the caller promises `count` verdicts, and the copy is new memory with space for them.
            unsafe { ptr::copy_nonoverlapping(verdicts, before.as_mut_ptr(), count) };
        }
        let call = |frames: &[Frame<'_>], records: &mut [VerdictRecord]| {
            for (record, former) in records.iter_mut().zip(before) {
                *record = former;
            }
            handle::with_tracker(tracker, |table| {
                table.commit(frames, now_s, records);
                Ok(())
            })
        };
        // SAFETY: this function requires the same.
        unsafe { with_burst(packets, count, verdicts, call) }
    })
}

/// Tracks a burst, judges it by rules, and creates the connections of accepted packets.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_filter(
    classifier: u64,
    tracker: u64,
    packets: *const PacketDescriptor,
    count: usize,
    now_s: u32,
    verdicts: *mut VerdictRecord,
) -> c_int {
    guarded(|| {
        check_time(now_s)?;
        let call = |frames: &[Frame<'_>], records: &mut [VerdictRecord]| {
            handle::with_classifier(classifier, |rules| {
                handle::with_tracker(tracker, |table| table.filter(rules, frames, now_s, records))
            })
        };
        // SAFETY: this function requires the same.
        unsafe { with_burst(packets, count, verdicts, call) }
    })
}

/// Removes expired connections, in at most `budget` steps. `removed` is optional: their number.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_tracker_expire(
    tracker: u64,
    now_s: u32,
    budget: u32,
    removed: *mut u32,
) -> c_int {
    guarded(|| {
        check_time(now_s)?;
        let to = Out::optional(removed)?;
        let count = handle::with_tracker(tracker, |table| Ok(table.expire(now_s, budget)))?;
        if let Some(to) = to {
            // SAFETY: this function requires the same.
            unsafe { to.set(count) };
        }
        Ok(())
    })
}

/// Reads a connection.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_connection_get(
    tracker: u64,
    connection: u64,
    record: *mut ConnectionRecord,
) -> c_int {
    guarded(|| {
        let to = Out::required(record)?;
        let found = handle::with_tracker(tracker, |table| table.get(connection))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(found) };
        Ok(())
    })
}

/// Sets the mark of a connection.
#[unsafe(no_mangle)]
pub extern "C" fn qw_connection_set_mark(tracker: u64, connection: u64, mark: u32) -> c_int {
    guarded(|| handle::with_tracker(tracker, |table| table.set_mark(connection, mark)))
}

/// Sets the bits of the mark of a connection that are in the mask.
#[unsafe(no_mangle)]
pub extern "C" fn qw_connection_set_mark_bits(
    tracker: u64,
    connection: u64,
    mark: u32,
    mask: u32,
) -> c_int {
    let bits = (mark, mask);
    guarded(|| handle::with_tracker(tracker, |table| table.set_mark_bits(connection, bits)))
}

/// Reads the label of a connection.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_connection_get_label(
    tracker: u64,
    connection: u64,
    label: *mut LabelRecord,
) -> c_int {
    guarded(|| {
        let to = Out::required(label)?;
        let found = handle::with_tracker(tracker, |table| table.label(connection))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(found) };
        Ok(())
    })
}

/// Sets the bits of the label of a connection that are in the mask. Without a mask, it sets all bits.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_connection_set_label(
    tracker: u64,
    connection: u64,
    label: *const LabelRecord,
    mask: *const LabelRecord,
) -> c_int {
    guarded(|| {
        check(label)?;
        // SAFETY: the pointer was checked, and the caller promises that it leads to a label.
        let label = unsafe { label.read() };
        let mask = if mask.is_null() {
            u128::MAX
        } else {
            check(mask)?;
            // SAFETY: the pointer was checked, and the caller promises that it leads to a mask.
            let mask = unsafe { mask.read() };
            mask.value()
        };
        let bits = (label.value(), mask);
        handle::with_tracker(tracker, |table| table.set_label(connection, bits))
    })
}

/// Reads the labels of the connections of verdicts.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_verdict_labels(
    tracker: u64,
    verdicts: *const VerdictRecord,
    count: usize,
    labels: *mut LabelRecord,
) -> c_int {
    guarded(|| {
        if count > BURST_MAX {
            return Err(Status::Size);
        }
        // SAFETY: this function requires the same.
        let verdicts = unsafe { list(verdicts, count) }?;
        if count > 0 {
            check(labels.cast_const())?;
        }
        let mut found = [LabelRecord::default(); BURST_MAX];
        handle::with_tracker(tracker, |table| table.labels_of(verdicts, &mut found))?;
        if count > 0 {
            // SAFETY: the caller promises space for `count` labels, the pointer was checked, and the labels are not in the caller's memory.
            unsafe { ptr::copy_nonoverlapping(found.as_ptr(), labels, count) };
        }
        Ok(())
    })
}

/// Reads a page of connections, from position `from` on.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_tracker_list(
    tracker: u64,
    from: u32,
    records: *mut ConnectionRecord,
    capacity: usize,
    count: *mut usize,
    next: *mut u32,
) -> c_int {
    guarded(|| {
        let first = Out::required(records)?;
        let (count, next) = (Out::required(count)?, Out::required(next)?);
        let (listed, position) = handle::with_tracker(tracker, |table| {
            Ok(table.list(from, capacity.min(PAGE_MAX), |number, record| {
                // SAFETY: the pointer was checked, the caller promises space for `capacity` records, and `number` is less.
                unsafe { first.0.add(number).write(*record) };
            }))
        })?;
        // SAFETY: this function requires the same.
        unsafe { count.set(listed) };
        // SAFETY: this function requires the same.
        unsafe { next.set(position) };
        Ok(())
    })
}

/// Reads the counters of a tracker.
///
/// # Safety
/// See the [module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qw_tracker_counters(
    tracker: u64,
    counters: *mut TrackerCounters,
) -> c_int {
    guarded(|| {
        let to = Out::required(counters)?;
        let found = handle::with_tracker(tracker, |table| Ok(table.counters()))?;
        // SAFETY: this function requires the same.
        unsafe { to.set(found) };
        Ok(())
    })
}

#[cfg(test)]
mod tests;
