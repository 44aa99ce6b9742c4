// SPDX-License-Identifier: Apache-2.0
//! The vhost protocol.
#![forbid(unsafe_code)]

pub mod driver;
pub mod ring;
