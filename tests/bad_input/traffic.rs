// SPDX-License-Identifier: Apache-2.0
//! Invalid descriptions of traffic and captures, and unavailable applications.

use std::fs;
use std::net::UdpSocket;

use crate::workspace::Workspace;
use crate::{BAD_INPUT, FAILED, LACKS};

#[test]
fn a_wrong_description_of_conversations_is_named_with_line_and_key() {
    let workspace = Workspace::unchanged();
    let with = |text: &str, options: &[&str]| {
        fs::write(workspace.path("c.toml"), text).unwrap();
        let fixed = ["--port", "null:", "--connections", "c.toml"];
        workspace.generate(&[&fixed, options].concat())
    };
    let at_rate = "[connections]\nrate = 1.0";
    for (text, options, parts) in [
        (
            "[connections]\ncolour = 1",
            &[] as &[&str],
            &["c.toml:2:1", "connections.colour"] as &[&str],
        ),
        ("[connections]\nrate = 0", &[], &["c.toml:2:8", "rate is 0"]),
        (
            "[connections]\n\nmss = 9000",
            &["--concurrent", "1"],
            &["c.toml:3:7", "536 to 8922"],
        ),
        ("[connections]", &[], &["add --connections-rate"]),
        (at_rate, &[], &["require 2 ports, and 1"]),
        (at_rate, &["--rate", "1k"], &["--rate", "cannot be used"]),
        (at_rate, &["--connections-rate", "0"], &["above 0"]),
        (at_rate, &["--concurrent", "0"], &["--concurrent"]),
    ] {
        workspace.refused(BAD_INPUT, with(text, options), parts);
    }
}

#[test]
fn a_wrong_description_is_named_with_line_and_key() {
    let workspace = Workspace::unchanged();
    let with = |text: &str, options: &[&str]| {
        fs::write(workspace.path("t.toml"), text).unwrap();
        let fixed = ["--port", "null:", "--traffic", "t.toml"];
        workspace.generate(&[&fixed, options].concat())
    };
    for (text, parts) in [
        (
            "[traffic]\ncolour = 1",
            &["t.toml:2:1", "traffic.colour"] as &[&str],
        ),
        ("colour = 1", &["t.toml:1:1", "colour"]),
        (
            "[traffic]\nsizes = 63",
            &["t.toml:2:9", "traffic.sizes", "64 to 9000"],
        ),
        (
            "[traffic]\n\nsizes = { genome = \"aaqa\" }",
            &["t.toml:3:9", "'q' is not a letter of RFC 6985"],
        ),
        (
            "[traffic]\nsizes = { genome = \"99999999a\" }",
            &["t.toml:2:9", "99999999 times"],
        ),
        (
            "[traffic]\nsizes = 64\n[traffic.ipv6]",
            &["64 octets", "require 84"],
        ),
        (
            "[traffic]\nsizes = 70\n[traffic.vxlan]\nvni = 1",
            &["70 octets", "require 114"],
        ),
        (
            "[traffic.vxlan]\nvni = 16777216",
            &["t.toml:2:7", "traffic.vxlan.vni", "0 to 16777215"],
        ),
        (
            "[traffic.ipv4]\nsource = { first = \"255.255.255.0\", count = 1000 }",
            &["t.toml:2:10", "exceed the field"],
        ),
    ] {
        workspace.refused(BAD_INPUT, with(text, &["--rate", "1k"]), parts);
    }
    let plain = "[traffic]\n";
    let bursts = "[traffic]\nburst = { frames = 65535, gap-us = 0.001 }";
    for (text, options, part) in [
        (plain, &[] as &[&str], "add --rate"),
        (plain, &["--rate", "1k", "--flows", "7"], "--flows"),
        (bursts, &[], "the limit is"),
        (bursts, &["--rate", "1k"], "--rate conflicts with"),
        (
            "[traffic]\nsizes = 64",
            &["--rate", "1k", "--frame-size", "64"],
            "--frame-size conflicts with",
        ),
        (
            "[traffic]\ndirections = \"both\"",
            &["--rate", "1k"],
            "requires two ports",
        ),
    ] {
        workspace.refused(BAD_INPUT, with(text, options), &[part]);
    }
    let absent = [
        "--port",
        "null:",
        "--rate",
        "1k",
        "--traffic",
        "absent.toml",
    ];
    workspace.refused(BAD_INPUT, workspace.generate(&absent), &["absent.toml"]);
}

#[test]
fn a_capture_that_is_none_is_named_with_its_offset() {
    let workspace = Workspace::unchanged();
    let text = "[traffic]\nreplay = { file = \"frames.pcap\" }\n";
    fs::write(workspace.path("t.toml"), text).unwrap();
    // A pcap header, and a packet of 60 octets of which 10 are in the file.
    let mut capture = Vec::new();
    capture.extend(0xa1b2_c3d4u32.to_le_bytes());
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    capture.extend(65_535u32.to_le_bytes());
    capture.extend(1u32.to_le_bytes());
    capture.extend([0; 8]);
    capture.extend(60u32.to_le_bytes());
    capture.extend(60u32.to_le_bytes());
    capture.extend([0; 10]);
    for (octets, parts) in [
        (
            &capture[..],
            &["frames.pcap", "truncated", "offset 24"] as &[&str],
        ),
        (&capture[..24], &["frames.pcap", "no frames"]),
        (&capture[..7], &["frames.pcap", "truncated", "offset 0"]),
        (
            b"not a capture at all",
            &["frames.pcap", "neither pcap nor pcapng"],
        ),
    ] {
        fs::write(workspace.path("frames.pcap"), octets).unwrap();
        let options = ["--port", "null:", "--rate", "1k", "--traffic", "t.toml"];
        workspace.refused(BAD_INPUT, workspace.generate(&options), parts);
    }
    fs::remove_file(workspace.path("frames.pcap")).unwrap();
    let options = ["--port", "null:", "--rate", "1k", "--traffic", "t.toml"];
    workspace.refused(
        BAD_INPUT,
        workspace.generate(&options),
        &["frames.pcap", "No such file"],
    );
}

#[test]
fn unavailable_applications_are_reported() {
    let workspace = Workspace::unchanged();
    let application =
        |arguments: &[&str]| workspace.quietwire(&[&["application"], arguments].concat());
    let iperf = ["iperf", "--address", "127.0.0.1"];
    for (options, code, parts) in [
        (
            &["--server-namespace", "absent"] as &[&str],
            BAD_INPUT,
            &["'absent'", "ip netns"] as &[&str],
        ),
        (&["--duration", "1500ms"], BAD_INPUT, &["whole seconds"]),
        (&["--streams", "0"], BAD_INPUT, &["--streams"]),
    ] {
        workspace.refused(code, application(&[&iperf, options].concat()), parts);
    }
    // For any machine: this path has no programs.
    let mut missing = application(&iperf);
    missing.env("PATH", workspace.path("lab"));
    workspace.refused(
        LACKS,
        missing,
        &["iperf3 is not installed", "apt-get install iperf3"],
    );

    let echo = ["echo", "--address", "127.0.0.1:1", "--duration", "100ms"];
    for (options, code, part) in [
        (&["--payload", "15"] as &[&str], BAD_INPUT, "--payload"),
        (&["--timeout", "0s"], BAD_INPUT, "longer than 0"),
        (&["--client-namespace", "absent"], BAD_INPUT, "'absent'"),
        (&["--transport", "tcp"], FAILED, "cannot reach"),
        (&["--transport", "udp"], FAILED, "cannot reach"),
    ] {
        workspace.refused(code, application(&[&echo, options].concat()), &[part]);
    }
    // A service that never replies.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let words = ["echo", "--address", address.as_str(), "--duration", "100ms"];
    let short = [&words[..], &["--timeout", "50ms", "--json"]].concat();
    workspace.refused(FAILED, application(&short), &["no reply to any of"]);
    let elsewhere = ["echo-server", "--address", "203.0.113.1:7"];
    workspace.refused(BAD_INPUT, application(&elsewhere), &["203.0.113.1:7"]);
}
