// SPDX-License-Identifier: Apache-2.0
//! The library as programs of C use it: compiled against the header, and linked with the shared object and with the static library. The
//! example for DPDK is compiled and linked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

    /// Runs a program that finds the shared object.
    fn run(&self, program: &Path) -> Output {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.path())
            .output()
            .unwrap()
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

#[test]
fn the_example_for_dpdk_compiles() {
    let libraries = Libraries::new();
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
    // It names its arguments before it starts DPDK.
    let output = libraries.run(&program);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("usage: dpdk-filter"));
}
