// SPDX-License-Identifier: Apache-2.0
//! A study of virtual functions: device and tester are in the guest, and cables connect their cards.

use std::time::Duration;

use serde_json::Value;

use crate::guest::CardGuest;
use crate::guest::Model::Igb;
use crate::{alone, with_function};

/// Time for a study of two cases in an emulated guest.
const STUDY: Duration = Duration::from_secs(420);

/// Rates are low: the emulation makes all of them meaningless.
const TEXT: &str = r#"
name = "functions"
title = "Virtual functions of emulated cards"
rounds = 1
[device]
switch = "quietwire"
topology = "vNet1"
ports = ["DEVICE0", "DEVICE1"]
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[tester]
cpu = "0"
ports = ["TESTER0", "TESTER1"]
realtime = false
huge-pages-mib = 128
[trials]
duration-s = 1
warm-up-s = 0.5
drain-s = 0.5
max-rate-pps = 1000
invalid-repeats = 100
[latency]
rate-pps = 200
duration-s = 1
repeats = 2
[neighbours]
kinds = ["cpu"]
[[case]]
name = "quiet"
neighbours = "none"
isolation = "sr-iov"
[[case]]
name = "noisy"
neighbours = "off-forwarding-cpus"
isolation = "sr-iov"
"#;

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_study_measures_virtual_functions_quiet_and_beside_neighbours() {
    let _alone = alone();
    let mut guest = CardGuest::boot_connected(&[Igb; 4], &[(0, 2), (1, 3)]);
    let testers = guest.addresses[2..].to_vec();
    guest.bind(&testers);
    // A function receives frames to its own address only. Those of the tester's first port go to the address of its second one.
    for (card, mac) in [(0, "02:01:00:00:00:00"), (1, "02:00:00:00:00:00")] {
        let (interface, _) = with_function(&mut guest, card);
        guest.run(&format!(
            "/usr/sbin/ip link set {interface} vf 0 mac {mac} spoofchk off"
        ));
    }
    let names = ["DEVICE0", "DEVICE1", "TESTER0", "TESTER1"];
    let text = names
        .iter()
        .zip(&guest.addresses)
        .fold(TEXT.to_owned(), |text, (name, address)| {
            text.replace(name, address)
        });
    guest.run(&format!("cat >/tmp/study.toml <<'END'\n{text}\nEND"));
    // CPU sets of the isolation.
    guest.run(
        "grep -q ' /sys/fs/cgroup cgroup2 ' /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup",
    );
    guest.run(
        "( cd /tmp && quietwire study run study.toml --json --state-directory /tmp/lab \
         >study.json 2>study.log </dev/null; echo $? >study.done; mv study.done study.code ) >/dev/null 2>&1 &",
    );
    guest.until_within("[ -e /tmp/study.code ]", STUDY);
    let log = guest.run("tail -n 40 /tmp/study.log");
    assert_eq!(guest.run("cat /tmp/study.code").trim(), "0", "{log}");
    let printed = guest.run("cat /tmp/study.json");
    let reported: Value = serde_json::from_str(&printed).unwrap();
    let summary = &reported["summary"];
    assert_eq!(summary["unavailable"], serde_json::json!([]), "{log}");
    let cases = summary["sizes"][0]["cases"].as_array().unwrap();
    let names: Vec<&str> = cases
        .iter()
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["quiet", "noisy"]);
    let cleaned = guest.run("quietwire lab clean --state-directory /tmp/lab");
    assert_eq!(cleaned, "nothing was left behind\n");
}
