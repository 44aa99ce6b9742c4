// SPDX-License-Identifier: Apache-2.0
//! The vhost protocol.
#![forbid(unsafe_code)]

pub mod driver;
#[doc(hidden)]
pub mod fuzz;
pub mod ring;
