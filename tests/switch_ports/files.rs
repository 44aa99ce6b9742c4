// SPDX-License-Identifier: Apache-2.0
//! Capture files as ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::rig::{Namespace, Switch, run, until};

/// Returns frames of every size up to 1514 octets, numbered, from a few stations.
pub(crate) fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |number: u32| {
        let length = 60 + (number as usize * 13) % 1455;
        let mut frame = vec![
            2,
            0,
            0,
            0,
            0,
            0xaa,
            2,
            0,
            0,
            0,
            0,
            (number % 7) as u8,
            0x88,
            0xb5,
        ];
        frame.extend(number.to_be_bytes());
        frame.resize(length, number as u8);
        frame
    };
    (0..count).map(frame).collect()
}

/// Writes a file in the format of pcap-savefile(5), little-endian.
pub(crate) fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut octets = Vec::new();
    let words = |octets: &mut Vec<u8>, words: &[u32]| {
        octets.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    words(&mut octets, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        words(&mut octets, &[1, number as u32, length, length]);
        octets.extend(frame);
    }
    fs::write(path, octets).unwrap();
}

pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let octets = fs::read(path).unwrap();
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(
            octets.get(at..at + 4)?.try_into().unwrap(),
        ))
    };
    assert!(matches!(word(0), Some(0xa1b2_c3d4 | 0xa1b2_3c4d)));
    let mut frames = Vec::new();
    let mut at = 24;
    while let Some(length) = word(at + 8) {
        let Some(frame) = octets.get(at + 16..at + 16 + length as usize) else {
            break;
        };
        frames.push(frame.to_vec());
        at += 16 + length as usize;
    }
    frames
}

/// Returns the number of frames and of octets, read by scapy.
fn as_scapy_reads(path: &Path) -> String {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
    let script = "import sys\nfrom scapy.utils import RawPcapReader\n\
                  all = [bytes(d) for d, _ in RawPcapReader(sys.argv[1])]\n\
                  print(len(all), sum(map(len, all)))";
    run(Command::new(python).args(["-c", script]).arg(path))
}

#[test]
fn frames_of_a_capture_file_are_forwarded_into_a_capture_file() {
    let namespace = Namespace::new("pcap");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let sent = frames(3000);
    write(&path("in.pcap"), &sent);
    let ports = [
        ("in", format!("pcap:?rx={}", path("in.pcap").display())),
        ("out", format!("pcap:?tx={}", path("out.pcap").display())),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &["--cross-connect", "in,out"],
    );
    until("all frames are sent", || {
        (switch.port("out")["tx_frames"] == sent.len()).then_some(())
    });
    assert_eq!(switch.port("in")["rx_frames"], sent.len());
    assert_eq!(switch.end(), Some(0));
    assert!(read(&path("out.pcap")) == sent, "frames were changed");
    let printed = as_scapy_reads(&path("out.pcap"));
    let octets: usize = sent.iter().map(Vec::len).sum();
    assert_eq!(printed.trim(), format!("{} {octets}", sent.len()));
}

#[test]
fn a_file_that_is_looped_never_ends() {
    let namespace = Namespace::new("loop");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let frames = frames(2000);
    write(&path("in.pcap"), &frames);
    let ports = [
        (
            "in",
            format!("pcap:?rx={}&loop=on", path("in.pcap").display()),
        ),
        ("out", "null:".to_owned()),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &["--cross-connect", "in,out"],
    );
    until("the file is read many times", || {
        (switch.port("in")["rx_frames"].as_u64() > Some(50_000)).then_some(())
    });
    let port = switch.port("in");
    let (octets, count) = (
        port["rx_octets"].as_f64().unwrap(),
        port["rx_frames"].as_f64().unwrap(),
    );
    let mean = frames.iter().map(Vec::len).sum::<usize>() as f64 / frames.len() as f64;
    assert!((octets / count / mean - 1.0).abs() < 0.05, "{port}");
    assert_eq!(switch.end(), Some(0));
}
