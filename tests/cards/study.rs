// SPDX-License-Identifier: Apache-2.0
//! Studies with network cards as ports: device and tester are in the guest, and cables connect their cards. Rates are low, and none is
//! judged: the emulation makes all of them meaningless.

use std::path::Path;
use std::time::Duration;

use quietwire_study::StudyFile;
use serde_json::Value;

use crate::create_functions;
use crate::guest::Model::Igb;
use crate::guest::{CardGuest, repeat_if_qemu_fails};

/// Time for a study in an emulated guest.
const STUDY: Duration = Duration::from_secs(420);

/// Prints the end of the log of a study.
const LOG: &str = "tail -n 40 /tmp/study.log";

/// The end of each study: trials, and one measurement.
const TRIALS: &str = r#"
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
"#;

const FUNCTIONS: &str = r#"
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

/// The network function runs beside the switch: a guest in the emulated guest would boot for minutes.
const PHYSICAL: &str = r#"
name = "physical"
title = "From emulated cards to a network function and back"
rounds = 1
[device]
switch = "quietwire"
topology = "vComp3-PHY2VM"
vnf = "testpmd-io"
place = "host"
ports = ["DEVICE0", "DEVICE1"]
[tester]
cpu = "0"
ports = ["TESTER0", "TESTER1"]
realtime = false
huge-pages-mib = 128
[[case]]
name = "quietwire"
"#;

/// A switch that its owner's commands start and end.
const OTHER: &str = r#"
name = "other"
title = "A device outside the lab, between emulated cards"
rounds = 1
[device]
switch = "other"
link = "other"
topology = "vNet1"
prepare = ["sh", "/tmp/prepare.sh", "DEVICE0", "DEVICE1"]
prepare-timeout-s = 120
restore = ["sh", "/tmp/restore.sh"]
restore-timeout-s = 120
[tester]
cpu = "0"
ports = ["TESTER0", "TESTER1"]
realtime = false
huge-pages-mib = 128
[[case]]
name = "other"
"#;

const PREPARE: &str = "\
echo prepare >>/tmp/calls
quietwire switch run --huge-pages require --memory-mib 256 --idle sleep --forwarding-cpus 1,2 --control-socket /tmp/other.sock \
    --port a=pci:$1 --port b=pci:$2 --cross-connect a,b >/tmp/switch.log 2>&1 </dev/null &
echo $! >/tmp/other.pid
until quietwire switch show ports --control-socket /tmp/other.sock >/dev/null 2>&1; do
    [ -e /proc/$(cat /tmp/other.pid) ] || { cat /tmp/switch.log; exit 1; }
    sleep 1
done
";

const RESTORE: &str = "\
echo restore >>/tmp/calls
[ -e /tmp/other.pid ] || exit 0
kill $(cat /tmp/other.pid) && rm /tmp/other.pid
while [ -S /tmp/other.sock ]; do sleep 1; done
";

/// Boots a guest with four cards: the first two are the device's, and cables connect them with the tester's.
fn connected() -> CardGuest {
    CardGuest::boot_connected(&[Igb; 4], &[(0, 2), (1, 3)])
}

/// Returns a study with the addresses of the cards.
fn with_addresses(text: &str, addresses: &[String]) -> String {
    let names = ["DEVICE0", "DEVICE1", "TESTER0", "TESTER1"];
    let mut text = format!("{text}{TRIALS}");
    for (name, address) in names.into_iter().zip(addresses) {
        text = text.replace(name, address);
    }
    text
}

/// Requires no card.
#[test]
fn the_studies_of_cards_are_valid() {
    let addresses: Vec<String> = (1..=4).map(|bus| format!("0000:0{bus}:00.0")).collect();
    for (text, cases) in [(FUNCTIONS, 2), (PHYSICAL, 1)] {
        let text = with_addresses(text, &addresses);
        let file = StudyFile::parse(&text, Path::new("study.toml")).unwrap();
        assert_eq!(file.cases.len(), cases);
        assert_eq!(file.device.ports, addresses[..2]);
        assert_eq!(file.tester.ports, addresses[2..]);
    }
    let text = with_addresses(OTHER, &addresses);
    let file = StudyFile::parse(&text, Path::new("study.toml")).unwrap();
    assert!(file.is_external());
    assert_eq!(file.device.prepare[2..], addresses[..2]);
    assert_eq!(file.tester.ports, addresses[2..]);
}

/// Runs a study from beginning to end, which leaves nothing behind. Returns the names of its cases.
fn run(guest: &mut CardGuest, text: &str) -> Vec<String> {
    let text = with_addresses(text, &guest.addresses);
    guest.run(&format!("cat >/tmp/study.toml <<'END'\n{text}\nEND"));
    guest.run(
        "( cd /tmp && quietwire study run study.toml --json --state-directory /tmp/lab \
         >study.json 2>study.log </dev/null; echo $? >study.done; mv study.done study.code ) >/dev/null 2>&1 &",
    );
    guest.until_within_or_report("[ -e /tmp/study.code ]", STUDY, LOG);
    let log = guest.run(LOG);
    assert_eq!(guest.run("cat /tmp/study.code").trim(), "0", "{log}");
    let printed = guest.run("cat /tmp/study.json");
    let reported: Value = serde_json::from_str(&printed).unwrap();
    let summary = &reported["summary"];
    assert_eq!(summary["unavailable"], serde_json::json!([]), "{log}");
    let cleaned = guest.run("quietwire lab clean --state-directory /tmp/lab");
    assert_eq!(cleaned, "nothing was left behind\n");
    let cases = summary["sizes"][0]["cases"].as_array().unwrap();
    for case in cases {
        let warnings = case["warnings"].as_array().unwrap().iter();
        let mut warnings = warnings.filter_map(Value::as_str);
        assert!(
            warnings.any(|warning| warning.contains("it runs in software emulation")),
            "{case}"
        );
    }
    let name = |case: &Value| case["name"].as_str().unwrap().to_owned();
    cases.iter().map(name).collect()
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_study_measures_virtual_functions_quiet_and_beside_neighbours() {
    repeat_if_qemu_fails(|| {
        let mut guest = connected();
        let testers = guest.addresses[2..].to_vec();
        guest.bind(&testers);
        // A function receives frames to its own address only. Those of the tester's first port go to the address of its second one.
        let mut functions = Vec::new();
        for (card, mac) in [(0, "02:01:00:00:00:00"), (1, "02:00:00:00:00:00")] {
            let (interface, function) = create_functions(&mut guest, card);
            functions.push(function);
            guest.run(&format!(
                "/usr/sbin/ip link set {interface} vf 0 mac {mac} spoofchk off"
            ));
        }
        // CPU sets of the isolation.
        guest.run(
        "grep -q ' /sys/fs/cgroup cgroup2 ' /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup",
    );
        // The study binds the functions, and returns them to their former drivers.
        let drivers = |guest: &mut CardGuest| -> Vec<String> {
            let of_function = |function: &String| {
                guest.run(&format!(
                "cd /sys/bus/pci/devices/{function} && cat driver_override && (readlink driver || echo none)"
            ))
            };
            functions.iter().map(of_function).collect()
        };
        let before = drivers(&mut guest);
        assert!(
            before.iter().all(|text| !text.contains("vfio-pci")),
            "{before:?}"
        );
        assert_eq!(run(&mut guest, FUNCTIONS), ["quiet", "noisy"]);
        assert_eq!(drivers(&mut guest), before);
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_study_measures_from_cards_to_a_network_function_and_back() {
    repeat_if_qemu_fails(|| {
        let mut guest = connected();
        guest.bind_all();
        assert_eq!(run(&mut guest, PHYSICAL), ["quietwire"]);
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_study_measures_a_device_between_cards_that_commands_prepare() {
    repeat_if_qemu_fails(|| {
        let mut guest = connected();
        guest.bind_all();
        for (name, script) in [("prepare", PREPARE), ("restore", RESTORE)] {
            guest.run(&format!("cat >/tmp/{name}.sh <<'END'\n{script}END"));
        }
        assert_eq!(run(&mut guest, OTHER), ["other"]);
        assert_eq!(guest.run("cat /tmp/calls"), "prepare\nrestore\n");
        guest.run("[ ! -e /tmp/other.pid ] && [ ! -e /tmp/other.sock ]");
    });
}
