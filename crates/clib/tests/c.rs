// SPDX-License-Identifier: Apache-2.0
//! The library as programs of C use it: compiled against the header, and linked with the shared object and with the static library. The
//! example for DPDK is compiled, and forwards frames of files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use quietwire_base::wait_until;
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"];

/// A directory with the libraries under the names that `make clib` gives them.
struct Libraries(TempDir);

impl Libraries {
    fn new() -> Self {
        // Cargo builds the libraries into the directory of the tests.
        let test = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (name, file) in [
            ("libquietwire.so", "libquietwire_clib.so"),
            ("libquietwire.so.1", "libquietwire_clib.so"),
            ("libquietwire.a", "libquietwire_clib.a"),
        ] {
            let built = test.with_file_name(file);
            assert!(built.is_file(), "{} is not there", built.display());
            symlink(built, directory.path().join(name)).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a command whose program finds the shared object.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path());
        command
    }

    fn run(&self, program: &Path) -> Output {
        self.command(program).output().unwrap()
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn compile<S: AsRef<OsStr>>(source: &Path, program: &Path, flags: &[S]) {
    let output = Command::new("cc")
        .arg("-I")
        .arg(Path::new(CRATE).join("include"))
        .args(["-o", program.to_str().unwrap()])
        .arg(source)
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn drive() -> PathBuf {
    Path::new(CRATE).join("tests/c/drive.c")
}

#[test]
fn a_program_of_c_filters_and_tracks_and_every_wrong_handle_is_an_error() {
    let libraries = Libraries::new();
    let program = libraries.path().join("drive");
    let search = format!("-L{}", libraries.path().display());
    compile(
        &drive(),
        &program,
        &[&WARNINGS[..], &[search.as_str(), "-lquietwire"]].concat(),
    );
    let output = libraries.run(&program);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("all checks passed\n"));
    // The program refers to the library by the number of the interface.
    let octets = std::fs::read(&program).unwrap();
    let name = b"libquietwire.so.1\0";
    assert!(octets.windows(name.len()).any(|part| part == name));
}

#[test]
fn a_program_of_c_can_be_linked_with_the_static_library() {
    let libraries = Libraries::new();
    let program = libraries.path().join("drive");
    let library = libraries.path().join("libquietwire.a");
    // What the standard library of Rust requires.
    let rest = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    let library = library.to_str().unwrap();
    compile(
        &drive(),
        &program,
        &[&WARNINGS[..], &[library], &rest[..]].concat(),
    );
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Time for the example to start, and to end.
const DEADLINE: Duration = Duration::from_secs(60);
const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
/// Connections from inside, and from outside. The example reads the frames of each port in one burst of 32.
const CONNECTIONS: u16 = 12;

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a frame with a TCP segment between hosts of 10.0.0.0/24, from the first host and port to the second.
fn segment(hosts: [u8; 2], ports: [u16; 2], flags: u8, numbers: [u32; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    for host in hosts {
        frame.extend([10, 0, 0, host]);
    }
    for port in ports {
        frame.extend(port.to_be_bytes());
    }
    for number in numbers {
        frame.extend(number.to_be_bytes());
    }
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// Returns a file of frames (pcap-savefile(5)).
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1u32] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        for word in [0, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Returns the frames of a file.
fn captured(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let mut rest = file.get(24..).expect("a header");
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let (frame, next) = behind.split_at(length as usize);
        frames.push(frame.to_vec());
        rest = next;
    }
    assert!(rest.is_empty(), "{rest:?}");
    frames
}

fn compile_example(libraries: &Libraries) -> PathBuf {
    let program = libraries.path().join("dpdk-filter");
    let output = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let flags = text(&output.stdout);
    let search = format!("-L{}", libraries.path().display());
    let mut flags: Vec<&str> = flags.split_whitespace().collect();
    flags.extend(["-O1", "-Wall", search.as_str(), "-lquietwire"]);
    let source = Path::new(CRATE).join("../../examples/dpdk-filter/main.c");
    compile(&source, &program, &flags);
    program
}

#[test]
fn the_example_for_dpdk_accepts_only_answers_from_outside() {
    let libraries = Libraries::new();
    let program = compile_example(&libraries);
    // It names its arguments before it starts DPDK.
    let output = libraries.run(&program);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("usage: dpdk-filter"));

    let path = |name: &str| libraries.path().join(name);
    let each = |make: fn(u16) -> Vec<u8>| -> Vec<Vec<u8>> { (0..CONNECTIONS).map(make).collect() };
    let opened = each(|number| segment([1, 9], [1000 + number, 443], SYN, [100, 0]));
    let answered = each(|number| segment([9, 1], [443, 1000 + number], SYN_ACK, [500, 101]));
    let from_outside = each(|number| segment([9, 1], [2000 + number, 22], SYN, [700, 0]));
    fs::write(path("in0"), capture(&opened)).unwrap();
    let of_outside = [answered.clone(), from_outside].concat();
    fs::write(path("in1"), capture(&of_outside)).unwrap();
    let mut command = libraries.command(&program);
    command.args(["--no-huge", "-m", "64", "--no-pci", "--no-shconf"]);
    command.arg("--no-telemetry");
    for port in [0, 1] {
        let [received, sent] = ["in", "out"].map(|name| path(&format!("{name}{port}")));
        let (received, sent) = (received.display(), sent.display());
        command.arg(format!(
            "--vdev=net_pcap{port},rx_pcap={received},tx_pcap={sent}"
        ));
    }
    command.args(["--", "1000"]);
    command.stdout(File::create(path("stdout")).unwrap());
    command.stderr(File::create(path("stderr")).unwrap());
    let printed = |name: &str| fs::read_to_string(path(name)).unwrap();
    let mut running = Running(command.spawn().unwrap());
    let has_started = wait_until(DEADLINE, || {
        let is_forwarding = printed("stdout").contains("forwarding\n");
        is_forwarding || running.0.try_wait().unwrap().is_some()
    });
    assert!(has_started, "{}", printed("stderr"));
    let number = running.0.id().to_string();
    let ended = Command::new("kill").args(["-INT", &number]).status();
    assert!(ended.unwrap().success(), "{}", printed("stderr"));
    let mut status = None;
    wait_until(DEADLINE, || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    let status = status.expect("the example ends");
    assert!(status.success(), "{}", printed("stderr"));
    assert_eq!(captured(&path("out1")), opened);
    assert_eq!(captured(&path("out0")), answered);
    assert_eq!(
        printed("stdout"),
        format!(
            "forwarding\nconnections: {CONNECTIONS}, created: {CONNECTIONS}, refused: 0, invalid packets: 0\n"
        )
    );
}
