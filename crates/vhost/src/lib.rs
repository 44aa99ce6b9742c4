// SPDX-License-Identifier: Apache-2.0
//! The vhost protocol.
#![forbid(unsafe_code)]

pub mod features;
pub mod message;
pub mod session;
pub mod address_space;
pub mod driver;
#[doc(hidden)]
pub mod fuzz;
pub mod ring;
