// SPDX-License-Identifier: Apache-2.0
//! Programs that the kernel runs (eBPF): an assembler of their instructions, and their maps and links (bpf(2)).
//!
//! This module must not know what programs do.

pub(crate) mod assembler;
pub(crate) mod bpf;
pub(crate) mod table;
