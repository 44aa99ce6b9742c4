// SPDX-License-Identifier: Apache-2.0
//! Virtqueues, as the device sees them: split (virtio 1.2, section 2.7) and packed (section 2.8).

pub mod header;
pub mod layout;

pub use header::OffloadHeader;
