// SPDX-License-Identifier: Apache-2.0
//! The `quietwire` command.

fn main() {}
