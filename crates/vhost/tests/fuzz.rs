// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of the vhost-user protocol and of virtqueues, each for a short while.
//!
//! The planted faults of sessions and rings require inputs longer than each of the corpus, which therefore cannot lead to them.

use std::time::Duration;

use quietwire_base::fuzz::{Outcome, check_for, planted};
use quietwire_vhost::fuzz;
use quietwire_vhost::message::FrontendRequest;

/// Sessions and rings have more states than the parser of a file.
const DURATION: Duration = Duration::from_secs(2);
/// Octets of the longest input of each corpus.
const BACKEND_LONGEST: usize = 121;
const FRONTEND_LONGEST: usize = 161;
const DEVICE_LONGEST: usize = 581;
const DRIVER_LONGEST: usize = 384;

fn check<O: Outcome>(name: &str, target: impl Fn(&[u8]) -> O) {
    check_for(DURATION, env!("CARGO_MANIFEST_DIR"), name, target);
}

#[test]
fn messages() {
    check("vhost-message", |octets| {
        let request = fuzz::fuzz_message(octets);
        planted("vhost-message", || {
            matches!(
                request,
                Some(FrontendRequest::SetRingBase { index: 1.., bits }) if bits >> 24 != 0
            )
        });
        request.is_some()
    });
}

#[test]
fn backend_sessions() {
    check("vhost-backend-session", |octets| {
        let starts = fuzz::fuzz_backend_session(octets);
        planted("vhost-backend-session", || {
            octets.len() > BACKEND_LONGEST && starts > 1
        });
        starts > 0
    });
}

#[test]
fn frontend_sessions() {
    check("vhost-frontend-session", |octets| {
        let depth = fuzz::fuzz_frontend_session(octets);
        planted("vhost-frontend-session", || {
            octets.len() > FRONTEND_LONGEST && depth.stopped_rings > 2
        });
        depth.was_ready
    });
}

#[test]
fn device_rings() {
    check("vhost-device-ring", |octets| {
        let depth = fuzz::fuzz_device_ring(octets);
        planted("vhost-device-ring", || {
            octets.len() > DEVICE_LONGEST
                && matches!(depth, Some(([first, _], receiver, _)) if first > 0 && receiver.bad > 0)
        });
        depth.is_some_and(|(frames, ..)| frames != [0; 2])
    });
}

#[test]
fn driver_rings() {
    check("vhost-driver-ring", |octets| {
        let depth = fuzz::fuzz_driver_ring(octets);
        planted("vhost-driver-ring", || {
            octets.len() > DRIVER_LONGEST && depth.merged > 0
        });
        depth.frames > 0
    });
}
