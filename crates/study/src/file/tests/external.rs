// SPDX-License-Identifier: Apache-2.0
//! Devices that the lab does not start.

use std::path::PathBuf;
use std::time::Duration;

use quietwire_lab::LabOptions;

use super::{SMALL, parse};
use crate::{LabBench, LabBenchError};

/// Returns the small study of a device that the lab does not start, with these keys of `[device]` and `[tester]`.
fn external(device: &str, tester: &str) -> String {
    for (text, count) in [
        ("switch = \"quietwire\"\n", 1),
        ("link = \"memif\"\n", 1),
        ("[tester]\n", 1),
    ] {
        assert_eq!(SMALL.matches(text).count(), count, "{text}");
    }
    SMALL
        .replace(
            "switch = \"quietwire\"\n",
            &format!("switch = \"other\"\n{device}\n"),
        )
        .replace("link = \"memif\"\n", "link = \"other\"\n")
        .replace("[tester]\n", &format!("[tester]\n{tester}\n"))
}

#[test]
fn a_device_outside_the_lab_has_ports_and_commands() {
    let device =
        "prepare = [\"/opt/start\", \"a b\"]\nprepare-timeout-s = 2.5\nrestore = [\"/opt/stop\"]";
    let tester = "ports = [\"0000:17:00.0\", \"memif:/run/b.sock?role=client\"]";
    let file = parse(&external(device, tester)).unwrap();
    assert!(file.is_external());
    assert_eq!(file.tester_cards(), ["0000:17:00.0"]);
    let commands = file.external_device(&file.cases[1]);
    let (prepare, restore) = (commands.prepare.unwrap(), commands.restore.unwrap());
    let environment = ["env", "QUIETWIRE_CASE=noisy", "QUIETWIRE_ISOLATION=none"];
    assert_eq!(
        prepare.words,
        [&environment[..], &["/opt/start", "a b"]].concat()
    );
    assert_eq!(prepare.timeout, Duration::from_millis(2500));
    assert_eq!(restore.words, [&environment[..], &["/opt/stop"]].concat());
    assert_eq!(restore.timeout, Duration::from_secs(60));
    let plain = parse(&external("", "")).unwrap();
    let commands = plain.external_device(&plain.cases[0]);
    assert_eq!((commands.prepare, commands.restore), (None, None));
}

#[test]
fn faults_of_a_device_outside_the_lab_are_named_with_their_key() {
    let two = "ports = [\"null:\", \"memif:/run/b.sock?role=client\"]";
    for (device, tester, key, says) in [
        ("prepare = [\"\"]", two, "device.prepare", "first word"),
        ("restore = [\"a\\u0000\"]", two, "device.restore", "NUL"),
        (
            "prepare = [\"a\"]\nprepare-timeout-s = 0",
            two,
            "device.prepare-timeout-s",
            "above 0",
        ),
        (
            "restore-timeout-s = 3",
            two,
            "device.restore-timeout-s",
            "no restore command",
        ),
        (
            "",
            "ports = [\"eth0\"]",
            "tester.ports",
            "not the URI of a port",
        ),
        (
            "",
            "ports = [\"null:\", \"null:\"]",
            "tester.ports",
            "given twice",
        ),
        (
            "",
            "ports = [\"0000:17:00.0\", \"0000:17:00.1\", \"0000:17:00.2\"]",
            "tester.ports",
            "one or two",
        ),
    ] {
        let message = parse(&external(device, tester)).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains(says), "{message}");
    }
    let text = external("", two).replace("stressors = [\"--cpu 4\"]", "network-pps = 1000");
    let message = parse(&text).unwrap_err().to_string();
    assert!(message.contains("neighbours.network-pps"), "{message}");
    let ours = SMALL.replace(
        "switch = \"quietwire\"\n",
        "switch = \"quietwire\"\nprepare = [\"a\"]\n",
    );
    let message = parse(&ours).unwrap_err().to_string();
    assert!(
        message.contains("device.prepare") && message.contains("switch = \"other\""),
        "{message}"
    );
}

#[test]
fn what_a_device_outside_the_lab_does_not_support_is_refused_before_anything_is_set_up() {
    let options = LabOptions {
        state_directory: PathBuf::from("/nonexistent"),
        program: PathBuf::from("/nonexistent"),
    };
    let check = |text: &str| LabBench::check(&parse(text).unwrap(), &options).unwrap_err();
    let error = check(&external("", ""));
    assert!(matches!(error, LabBenchError::NoPorts), "{error}");
    let reset = external("", "ports = [\"null:\"]").replace("[sweep]", "[reset]\n[sweep]");
    let error = check(&reset).to_string();
    assert!(error.contains("reset: quietwire cannot restart"), "{error}");
}
