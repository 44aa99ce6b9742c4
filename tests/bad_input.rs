// SPDX-License-Identifier: Apache-2.0
//! Tests of the real binary with invalid input, on a machine that lacks something, or with a signal: one helpful message,
//! the right exit code, and no remains. Requires root and two CPUs, as studies do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "bad_input/in_time.rs"]
mod in_time;
#[path = "bad_input/machine.rs"]
mod machine;
#[path = "bad_input/places.rs"]
mod places;
#[path = "bad_input/ports.rs"]
mod ports;
#[path = "bad_input/running.rs"]
mod running;
#[path = "bad_input/signals.rs"]
mod signals;
#[path = "bad_input/studies.rs"]
mod studies;
#[path = "bad_input/traffic.rs"]
mod traffic;
#[path = "bad_input/words.rs"]
mod words;
#[path = "bad_input/workspace.rs"]
mod workspace;

pub(crate) const NULLS: [&str; 6] = [
    "--port",
    "a=null:",
    "--port",
    "b=null:",
    "--cross-connect",
    "a,b",
];

pub(crate) const BAD_INPUT: i32 = 2;
pub(crate) const LACKS: i32 = 3;
pub(crate) const FAILED: i32 = 1;
