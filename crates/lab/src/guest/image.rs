// SPDX-License-Identifier: Apache-2.0
//! Image that guests boot. `images/build` builds it; the program contains that script, so that it needs no source tree.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::Command;

use crate::error::{LabError, io_error};

const BUILD: &str = include_str!("../../../../images/build");
const INIT: &str = include_str!("../../../../images/init");

/// Timeout for the build, which takes some seconds on an idle machine.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);
/// Exit code of `images/build` for a missing prerequisite.
const LACKS: i32 = 3;

/// An image that guests boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its directory, whose name contains a hash of the inputs.
    pub directory: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
}

impl Image {
    /// Returns a user's own image. Its init must start `quietwire guest-agent`, with the modules virtio_pci,
    /// virtio_console and virtio_net loaded.
    ///
    /// # Errors
    /// [`LabError::GuestSpec`] if a file does not exist.
    pub fn of_files(kernel: &Path, initramfs: &Path) -> Result<Self, LabError> {
        for (what, path) in [("kernel", kernel), ("initramfs", initramfs)] {
            if !path.is_file() {
                return Err(LabError::GuestSpec(format!(
                    "the guest's {what} {} is not a file",
                    path.display()
                )));
            }
        }
        Ok(Self {
            directory: kernel.parent().unwrap_or(Path::new("/")).to_owned(),
            kernel: kernel.to_owned(),
            initramfs: initramfs.to_owned(),
        })
    }

    /// Returns the image with this `quietwire` program. It is built if it is not in the cache (`quietwire/images` in
    /// `$XDG_CACHE_HOME` or `~/.cache`), which takes some seconds.
    ///
    /// # Errors
    /// [`LabError::Image`] with the output of the build.
    pub fn build(program: &Path) -> Result<Self, LabError> {
        Self::build_with(program, &[])
    }

    /// As [`Self::build`], with additional programs of the host at the same paths in the guest. They form a separate image: guests
    /// that need none of them boot faster without.
    ///
    /// # Errors
    /// [`LabError::Image`] with the output of the build.
    pub fn build_with(program: &Path, further: &[PathBuf]) -> Result<Self, LabError> {
        let scripts =
            tempfile::tempdir().map_err(io_error(&std::env::temp_dir(), "making a directory"))?;
        let script = scripts.path().join("build");
        for (path, text) in [(&script, BUILD), (&scripts.path().join("init"), INIT)] {
            let written = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o700)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(io_error(path, "writing it"))?;
        }
        tracing::debug!("preparing the image of guests");
        let finished = Command::new("/bin/bash")
            .arg(&script)
            .arg("--program")
            .arg(program)
            .args(
                further
                    .iter()
                    .flat_map(|path| [OsStr::new("--with"), path.as_os_str()]),
            )
            .run(Deadline::after(BUILD_TIMEOUT))
            .map_err(io_error(
                Path::new("/bin/bash"),
                "building the image of guests",
            ))?;
        let code = finished.status.and_then(|status| status.code());
        let printed = finished.into_result().map_err(|printed| LabError::Image {
            printed,
            is_lacking: code == Some(LACKS),
        })?;
        let directory = PathBuf::from(printed.lines().next_back().unwrap_or_default());
        Self::of_files(&directory.join("vmlinuz"), &directory.join("initramfs"))
    }

    /// Returns the list of inputs, one per line, as written by `images/build`; `None` for a user's own image.
    #[must_use]
    pub fn manifest(&self) -> Option<String> {
        fs::read_to_string(self.directory.join("manifest")).ok()
    }

    /// Returns the image's name in results.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self
            .directory
            .file_name()
            .unwrap_or(self.directory.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_scripts_are_scripts() {
        for (shell, script) in [("bash", BUILD), ("sh", INIT)] {
            let checked = std::process::Command::new(shell)
                .args(["-n", "-c", script])
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success(), "{shell}: {printed}");
        }
    }

    #[test]
    fn an_absent_program_is_reported_by_the_build() {
        let error = Image::build(Path::new("/no/such/program")).unwrap_err();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }

    #[test]
    fn a_custom_image_has_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("vmlinuz");
        fs::write(&file, "").unwrap();
        let error = Image::of_files(&file, &directory.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("initramfs"), "{error}");
        assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
        let image = Image::of_files(&file, &file).unwrap();
        assert_eq!(image.directory, directory.path());
        assert_eq!(image.manifest(), None);
    }
}
