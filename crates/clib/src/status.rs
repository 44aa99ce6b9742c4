// SPDX-License-Identifier: Apache-2.0
//! Results of functions.

use std::ffi::CStr;

/// Result of a function: `enum qw_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// No such object: a wrong handle, or its object was destroyed.
    Handle = -1,
    /// Another thread is using the object.
    Busy = -2,
    /// A pointer is null or not aligned.
    Pointer = -3,
    /// More packets or rules than allowed.
    Size = -4,
    /// A value out of range, or a rule that no packet can match.
    Argument = -5,
    /// Out of memory.
    Memory = -6,
    /// No free handle.
    Limit = -7,
    /// A defect of the library. The object can only be destroyed.
    Internal = -8,
}

impl Status {
    /// All results.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::Handle,
        Self::Busy,
        Self::Pointer,
        Self::Size,
        Self::Argument,
        Self::Memory,
        Self::Limit,
        Self::Internal,
    ];

    /// Returns the text of a result.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"success",
            Self::Handle => c"no such object (the handle is wrong, or the object was destroyed)",
            Self::Busy => c"another thread is using the object (use one handle per thread)",
            Self::Pointer => c"a pointer is null or not aligned",
            Self::Size => c"too many packets or rules",
            Self::Argument => c"a value is out of range, or no packet can match a rule",
            Self::Memory => c"out of memory",
            Self::Limit => c"no free handle (destroy objects that are not used)",
            Self::Internal => c"defect of the library (destroy the object)",
        }
    }

    /// Returns the text of a number that a function returned.
    #[must_use]
    pub fn text_of(number: i32) -> &'static CStr {
        let status = Self::ALL
            .into_iter()
            .find(|status| *status as i32 == number);
        status.map_or(c"unknown status", Self::text)
    }
}
