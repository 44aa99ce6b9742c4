// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the vhost-user protocol and of virtqueues, each for a short while.

use std::time::Duration;

use quietwire_base::fuzz::{Outcome, check_for};
use quietwire_vhost::fuzz;

/// Sessions and rings have more states than the parser of a file.
const DURATION: Duration = Duration::from_secs(2);

fn check<O: Outcome>(name: &str, target: impl Fn(&[u8]) -> O) {
    check_for(DURATION, env!("CARGO_MANIFEST_DIR"), name, target);
}

#[test]
fn messages() {
    check("vhost-message", fuzz::fuzz_message);
}

#[test]
fn backend_sessions() {
    check("vhost-backend-session", fuzz::fuzz_backend_session);
}

#[test]
fn frontend_sessions() {
    check("vhost-frontend-session", fuzz::fuzz_frontend_session);
}

#[test]
fn device_rings() {
    check("vhost-device-ring", fuzz::fuzz_device_ring);
}

#[test]
fn driver_rings() {
    check("vhost-driver-ring", fuzz::fuzz_driver_ring);
}
