// SPDX-License-Identifier: Apache-2.0
//! Tests of partitioning and rollback with the real binary: on a simulated machine, with kills at every point, and on this
//! machine. Requires root and two CPUs; third-party data planes are installed by `scripts/setup --with-tests`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "partition/data_planes.rs"]
mod data_planes;
#[path = "partition/labs.rs"]
mod labs;
#[path = "partition/made.rs"]
mod made;
#[path = "partition/recorder.rs"]
mod recorder;
#[path = "partition/rig.rs"]
mod rig;
// The duration of attacks is for tests of hostile peers only.
#[allow(dead_code)]
#[path = "hostile_peers/rng.rs"]
mod rng;
#[path = "partition/running.rs"]
mod running;
#[path = "partition/watching.rs"]
mod watching;

use std::path::Path;
use std::process::{Command, Output};

/// Runs `quietwire partition …`.
fn partition(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .arg("partition")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

fn done(arguments: &[&str]) -> String {
    let output = partition(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}
