// SPDX-License-Identifier: Apache-2.0
//! The routing daemon BIRD, in a namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::rig::{Namespace, run, until};

/// A BIRD process that ends with this value.
pub(crate) struct Bird {
    process: Child,
    control: PathBuf,
}

impl Bird {
    /// Starts the daemon with this configuration, and waits until it listens on its control socket. Its files are `NAME.*` in the directory.
    pub(crate) fn start(namespace: &Namespace, directory: &Path, name: &str, config: &str) -> Self {
        let path = |ending: &str| directory.join(format!("{name}.{ending}"));
        fs::write(path("conf"), config).unwrap();
        let control = path("ctl");
        let mut command = namespace.command("bird");
        command.arg("-f").arg("-c").arg(path("conf"));
        command.arg("-s").arg(&control).arg("-P").arg(path("pid"));
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = quiet.spawn().unwrap();
        let daemon = Self { process, control };
        until("the daemon listens", || {
            daemon.control.exists().then_some(())
        });
        daemon
    }

    /// Gives the daemon a command of `birdc`.
    pub(crate) fn control(&self, arguments: &[&str]) {
        let mut command = Command::new("birdc");
        run(command.arg("-s").arg(&self.control).args(arguments));
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
