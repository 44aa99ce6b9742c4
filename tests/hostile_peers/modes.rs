// SPDX-License-Identifier: Apache-2.0
//! Mode of the switch's sockets: from the moment at which their path exists, only their owner may connect.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rng::attack_time;
use crate::scene::Scene;

/// Reads the mode of a path repeatedly; returns all modes but 0600.
fn wrong_modes(path: &Path, is_over: &AtomicBool) -> Vec<u32> {
    let mut modes = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(metadata) = std::fs::symlink_metadata(path) else {
            continue;
        };
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.file_type().is_socket() && mode != 0o600 && !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

fn is_never_open(kind: &str, scheme: &str) {
    let scene = Scene::of(kind, scheme, "");
    let path = scene.path("late.sock");
    scene.withstands(|| {
        let is_over = AtomicBool::new(false);
        let modes = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| wrong_modes(&path, &is_over));
            let began = std::time::Instant::now();
            while began.elapsed() < attack_time() {
                scene.add_port("late", &format!("{scheme}:DIR/late.sock?role=server"));
                assert!(path.exists());
                scene.switch.change(&["del", "port", "late"]);
            }
            is_over.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        let modes: Vec<String> = modes.iter().map(|mode| format!("{mode:o}")).collect();
        assert!(modes.is_empty(), "for a while the mode was {modes:?}");
    });
    scene.ends();
}

#[test]
fn the_socket_of_a_memif_port_is_never_open_to_others() {
    is_never_open("mode-memif", "memif");
}

#[test]
fn the_socket_of_a_vhost_port_is_never_open_to_others() {
    is_never_open("mode-vhost", "vhost");
}
