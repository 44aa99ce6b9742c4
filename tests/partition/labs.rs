// SPDX-License-Identifier: Apache-2.0
//! Labs on this machine while a partition is applied.

use std::path::Path;
use std::process::{Command, Output};

use quietwire_host::partition::{Plan, Role};
use serde_json::Value;

use super::rig::{Machine, SETS, allowed, settings};
use super::{done, name, text};

fn lab(state_directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .arg("lab")
        .args(words)
        .args(["--state-directory", name(state_directory)])
        .output()
        .unwrap()
}

#[test]
fn a_lab_has_isolated_cpus_only_by_the_plan_and_none_that_is_up_is_robbed() {
    let machine = Machine::new(0);
    let state_directory = machine.directory.path().join("labs");
    let lab = |words: &[&str]| lab(&state_directory, words);
    done(&["apply", "--plan", machine.plan()]);
    let plan: Plan = serde_json::from_slice(&std::fs::read(&machine.plan).unwrap()).unwrap();
    let isolated = plan.cpus(Role::Forwarding).to_string();

    let refused = lab(&["up", "vNet1", "--cpus", &format!("S={isolated}")]);
    let printed = text(&refused);
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("--plan FILE") && printed.contains(&format!("CPU {isolated} ")),
        "{printed}"
    );
    assert!(!state_directory.join("named").exists());

    let up = lab(&["up", "vNet1", "--plan", machine.plan(), "--json"]);
    assert!(up.status.success(), "{}", text(&up));
    let state: Value = serde_json::from_slice(&up.stdout).unwrap();
    let threads = state["elements"][0]["threads"].as_array().unwrap();
    let forwarding = threads.iter().find(|one| one["role"] == "forwarding");
    let tid = forwarding.unwrap()["tid"].as_u64().unwrap();
    assert_eq!(allowed(u32::try_from(tid).unwrap()), isolated);
    let tester = plan.cpus(Role::Host).to_string();
    let traffic = ["--rate", "500", "--duration", "500ms", "--drain", "1s"];
    let memory = ["--no-huge", "--memory-mib", "128", "--cpus", &tester];
    let check = lab(&[&["check", "vNet1"][..], &traffic, &memory].concat());
    assert!(check.status.success(), "{}", text(&check));

    // A study whose cases isolate would take the lab's CPUs once the partition is rolled back.
    done(&["rollback"]);
    let refused = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["study", "run", "cache-and-bandwidth", "--state-directory"])
        .arg(&state_directory)
        .current_dir(machine.directory.path())
        .output()
        .unwrap();
    let printed = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{printed}");
    assert!(printed.contains("labs that are up: vNet1"), "{printed}");
    let store = machine.directory.path().join("cache-and-bandwidth.sqlite");
    assert!(!store.exists());

    let down = lab(&["down", "vNet1"]);
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(settings(), machine.before);
    let sets = std::fs::read_dir(SETS).unwrap().flatten();
    let mut names = sets.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(!names.any(|name| name.starts_with("quietwire-")));
}
