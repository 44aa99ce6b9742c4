// SPDX-License-Identifier: Apache-2.0
//! Detection of working KVM. A successful open of `/dev/kvm` is not sufficient: on some nested machines no guest boots
//! nevertheless. The probe therefore boots a guest, once per host and boot, and caches the outcome.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::proc::kernel_release;
use quietwire_base::supervised::{Command, LOG_MAX, Streams};
use quietwire_base::{Deadline, LockError, LockFile, wait_until};
use serde::{Deserialize, Serialize};

use super::console::last_lines;
use super::image::Image;
use super::spec::{AcceleratorChoice, CONSOLE_OUTPUT, QEMU, QEMU_PACKAGE};
use crate::error::{LabError, io_error};
use crate::spawn::require;

const DEVICE: &str = "/dev/kvm";
/// Console line of the probe's guest when it is up (`images/init`).
const UP: &str = "quietwire: the guest is up";
/// Timeout of the probe. A guest under KVM takes one second.
const DEADLINE: Duration = Duration::from_secs(8);

/// Timeout for another process's probe: the first process boots a guest, the others read its outcome.
const PROBES_MAX: Duration = Duration::from_secs(60);

/// Accelerator of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// KVM: the CPU executes the guest's instructions.
    Kvm,
    /// QEMU translates the guest's instructions (TCG): several times slower, and not comparable with KVM.
    Software,
}

/// Accelerator of guests on this machine, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceleration {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// The reason for it.
    #[serde(alias = "why")]
    pub reason: String,
}

/// The cached outcome, with the kernel and boot that it is valid for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    kernel: String,
    boot_id: String,
    found: Acceleration,
}

/// Returns the accelerator for a choice. Boots a probe guest on the first call after the machine has booted.
///
/// # Errors
/// [`LabError::MissingProgram`] without QEMU, [`LabError::NoKvm`] when KVM was asked for and no guest boots under it.
pub fn acceleration(choice: AcceleratorChoice, image: &Image) -> Result<Acceleration, LabError> {
    require(QEMU, QEMU_PACKAGE)?;
    if choice == AcceleratorChoice::Software {
        return Ok(software("software emulation was requested".to_owned()));
    }
    let found = found(image)?;
    if choice == AcceleratorChoice::Kvm && found.accelerator != Accelerator::Kvm {
        return Err(LabError::NoKvm(found.reason));
    }
    Ok(found)
}

fn software(reason: String) -> Acceleration {
    Acceleration {
        accelerator: Accelerator::Software,
        reason,
    }
}

fn found(image: &Image) -> Result<Acceleration, LabError> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Ok(software(format!("{DEVICE} cannot be opened: {error}")));
    }
    let directory = cache_directory();
    fs::create_dir_all(&directory).map_err(io_error(&directory, "making the directory"))?;
    let path = directory.join("kvm.json");
    // One probe at a time: other processes wait for its outcome.
    let lock_path = directory.join("kvm.lock");
    let _lock =
        LockFile::acquire(&lock_path, Deadline::after(PROBES_MAX)).map_err(probe_not_over)?;
    let (kernel, boot_id) = host();
    match remembered(&path, &kernel, &boot_id) {
        Ok(Some(found)) => return Ok(found),
        Ok(None) => {}
        Err(error) => tracing::warn!(
            "{}: {error}; testing KVM again and replacing the file",
            path.display()
        ),
    }
    tracing::info!("testing whether guests boot under KVM on this machine");
    let found = probe(image)?;
    let remember = Remembered {
        kernel,
        boot_id,
        found: found.clone(),
    };
    serde_json::to_vec_pretty(&remember)
        .map_err(std::io::Error::from)
        .and_then(|text| fs::write(&path, text))
        .map_err(io_error(&path, "caching the outcome"))?;
    Ok(found)
}

fn probe_not_over(error: LockError) -> LabError {
    match error {
        LockError::Busy { path, owner } => LabError::Io {
            path,
            what: "waiting for another process that tests KVM",
            cause: std::io::Error::other(format!("{owner} still holds the lock")),
        },
        error => error.into(),
    }
}

/// Returns quietwire's cache directory.
fn cache_directory() -> PathBuf {
    let of_user = || {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
        PathBuf::from(home).join(".cache")
    };
    let printed = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    printed
        .map_or_else(of_user, PathBuf::from)
        .join("quietwire")
}

/// Returns the kernel's release and the machine's boot ID (random(4): boot_id changes at each boot).
fn host() -> (String, String) {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    (kernel_release(), boot_id.trim().to_owned())
}

/// Returns the outcome of an earlier probe; `None` if there was none since the machine booted with this kernel.
///
/// # Errors
/// The file cannot be read, or another program or version wrote it.
fn remembered(path: &Path, kernel: &str, boot_id: &str) -> std::io::Result<Option<Acceleration>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let remembered: Remembered = serde_json::from_slice(&text)?;
    let is_current = remembered.kernel == kernel && remembered.boot_id == boot_id;
    Ok(is_current.then_some(remembered.found))
}

fn probe(image: &Image) -> Result<Acceleration, LabError> {
    require("setpriv", "util-linux")?;
    let directory =
        tempfile::tempdir().map_err(io_error(&std::env::temp_dir(), "making a directory"))?;
    let console = directory.path().join("console.log");
    let printed = directory.path().join("qemu.log");
    let mut guest = Command::new(QEMU)
        .args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ])
        .args([
            "-machine", "q35", "-accel", "kvm", "-cpu", "host", "-smp", "2", "-m", "512M",
        ])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", "console=ttyS0,115200 panic=-1 quietwire.probe"])
        .arg("-serial")
        .arg(format!("file:{CONSOLE_OUTPUT}"))
        .with_parent()
        .start(Streams::Logs {
            stdout: &console,
            stderr: &printed,
            max: LOG_MAX,
        })
        .map_err(io_error(Path::new(QEMU), "starting the probe of KVM"))?;
    let is_up = || fs::read(&console).is_ok_and(|text| String::from_utf8_lossy(&text).contains(UP));
    wait_until(DEADLINE, || is_up() || guest.has_ended());
    if is_up() {
        return Ok(Acceleration {
            accelerator: Accelerator::Kvm,
            reason: "a guest boots under KVM here".to_owned(),
        });
    }
    let ended = match guest.has_ended() {
        true => format!("QEMU ended: {}", last_lines(&printed)),
        false => format!("it was not up in {} s", DEADLINE.as_secs()),
    };
    drop(guest);
    let last = last_lines(&console);
    let last = last.lines().next_back().unwrap_or_default();
    Ok(software(format!(
        "{DEVICE} opens, and no guest boots under it: {ended}; the last line of its console: {last}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_the_kvm_test_is_valid_for_one_boot_and_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kvm.json");
        let remembered = |kernel, boot_id| super::remembered(&path, kernel, boot_id);
        assert_eq!(remembered("6.1", "a").unwrap(), None);
        let found = software("because".to_owned());
        let remember = Remembered {
            kernel: "6.1".to_owned(),
            boot_id: "a".to_owned(),
            found: found.clone(),
        };
        fs::write(&path, serde_json::to_string(&remember).unwrap()).unwrap();
        assert_eq!(remembered("6.1", "a").unwrap(), Some(found));
        assert_eq!(remembered("6.1", "b").unwrap(), None);
        assert_eq!(remembered("6.2", "a").unwrap(), None);
        fs::write(&path, "{").unwrap();
        let error = remembered("6.1", "a").unwrap_err().to_string();
        assert!(error.contains("EOF while parsing"), "{error}");
        let (kernel, boot_id) = host();
        assert!(
            !kernel.is_empty() && boot_id.len() == 36,
            "{kernel} {boot_id}"
        );
    }
}
