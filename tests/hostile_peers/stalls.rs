// SPDX-License-Identifier: Apache-2.0
//! Test of the method: frames beside an attack are lost if the switch stalls.

use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scene::Scene;

/// More than twice the time in which the tester's rings fill.
const STALL: Duration = Duration::from_millis(500);

#[test]
fn frames_beside_an_attack_are_lost_if_the_switch_stands_still() {
    let scene = Scene::new("stall", &[], &[]);
    let switch = Pid::from_raw(scene.switch.pid().cast_signed());
    scene.notices(|| {
        kill(switch, Signal::SIGSTOP).unwrap();
        thread::sleep(STALL);
        kill(switch, Signal::SIGCONT).unwrap();
    });
    scene.ends();
}
