// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as what a peer sends or writes, and must end without a panic.

pub mod driver;
pub mod ring;
pub mod session;

pub use driver::fuzz_driver_ring;
pub use ring::fuzz_device_ring;
pub use session::{fuzz_backend_session, fuzz_frontend_session, fuzz_message};
