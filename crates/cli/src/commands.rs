// SPDX-License-Identifier: Apache-2.0
//! Subcommands, one file each.

pub(crate) mod application;
pub(crate) mod chosen_tester;
pub(crate) mod cluster;
pub(crate) mod cni;
pub(crate) mod compare;
pub(crate) mod completions;
mod device;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod host;
mod isolation;
pub(crate) mod lab;
pub(crate) mod manual;
pub(crate) mod measure;
mod own_tester;
pub(crate) mod partition;
pub(crate) mod serve;
pub(crate) mod study;
pub(crate) mod switch;
pub(crate) mod tester;
pub(crate) mod trend;
