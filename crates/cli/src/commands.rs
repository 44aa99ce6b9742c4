// SPDX-License-Identifier: Apache-2.0
//! One file a command.

pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod switch;
