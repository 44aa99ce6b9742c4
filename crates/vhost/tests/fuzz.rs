// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the vhost-user protocol and of virtqueues, each for a short while.

use std::path::Path;

use quietwire_base::fuzz::run;
use quietwire_vhost::fuzz;

fn corpus(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name)
}

#[test]
fn messages() {
    assert!(run("vhost-message", &corpus("message"), fuzz::fuzz_message) > 100);
}

#[test]
fn backend_sessions() {
    let target = fuzz::fuzz_backend_session;
    assert!(run("vhost-backend-session", &corpus("backend-session"), target) > 100);
}

#[test]
fn frontend_sessions() {
    let target = fuzz::fuzz_frontend_session;
    assert!(
        run(
            "vhost-frontend-session",
            &corpus("frontend-session"),
            target
        ) > 100
    );
}

#[test]
fn device_rings() {
    assert!(
        run(
            "vhost-device-ring",
            &corpus("device-ring"),
            fuzz::fuzz_device_ring
        ) > 10
    );
}

#[test]
fn driver_rings() {
    assert!(
        run(
            "vhost-driver-ring",
            &corpus("driver-ring"),
            fuzz::fuzz_driver_ring
        ) > 10
    );
}
