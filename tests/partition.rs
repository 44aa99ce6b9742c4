// SPDX-License-Identifier: Apache-2.0
//! The real binary partitions a machine and takes that back: a made one, killed at every point, and the one that runs.
//! Wants root and two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "partition/made.rs"]
mod made;
#[path = "partition/running.rs"]
mod running;

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
