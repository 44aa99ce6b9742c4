// SPDX-License-Identifier: Apache-2.0
//! Programs of the local cluster: those that scripts/build-cluster builds or unpacks, and those that the machine has.

use std::path::{Path, PathBuf};

use quietwire_base::{find_program, is_program};

use super::error::LocalError;

/// Version of Kubernetes that scripts/build-cluster builds.
pub const VERSION: &str = "v1.33.1";

/// Programs in the directory of scripts/build-cluster.
const BUILT: [&str; 10] = [
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "runc",
];
/// Programs of the machine, with Debian's packages.
const INSTALLED: [(&str, &str); 6] = [
    ("openssl", "openssl"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("ip", "iproute2"),
];
/// File of the image of pods' sandboxes.
const PAUSE: &str = "pause.tar";

/// Returns the directory of scripts/build-cluster: `quietwire/kubernetes` in the cache directory of the user.
#[must_use]
pub fn default_directory() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = given("QUIETWIRE_KUBERNETES") {
        return directory.into();
    }
    let cache = match (given("XDG_CACHE_HOME"), given("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => PathBuf::from("/root/.cache"),
    };
    cache.join("quietwire/kubernetes")
}

/// The programs in a directory of scripts/build-cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Checks that all programs are there.
    ///
    /// # Errors
    /// [`LocalError::Missing`].
    pub(super) fn find(directory: &Path) -> Result<Self, LocalError> {
        let programs = Self {
            directory: directory.to_owned(),
        };
        for name in BUILT {
            let path = programs.path(name);
            if !is_program(Path::new("/"), &path) {
                return Err(missing(&path));
            }
        }
        for path in [programs.pause(), programs.plugins().join("bridge")] {
            if !path.is_file() {
                return Err(missing(&path));
            }
        }
        for (name, package) in INSTALLED {
            if find_program(name).is_none() {
                return Err(LocalError::Missing {
                    what: format!("the program {name}"),
                    cure: format!("apt-get install {package}"),
                });
            }
        }
        Ok(programs)
    }

    /// Returns programs that need not exist.
    #[cfg(test)]
    pub(super) fn of_tests(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Returns the directory of the programs, which is of one version.
    pub(super) fn binaries(&self) -> PathBuf {
        self.directory.join(format!("bin-{VERSION}"))
    }

    /// Returns the path of a program.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.binaries().join(name)
    }

    /// Returns the image of pods' sandboxes, an archive in the OCI layout.
    pub(super) fn pause(&self) -> PathBuf {
        self.directory.join(PAUSE)
    }

    /// Returns the directory of CNI plugins.
    pub(super) fn plugins(&self) -> PathBuf {
        self.directory.join("cni")
    }
}

fn missing(path: &Path) -> LocalError {
    LocalError::Missing {
        what: path.display().to_string(),
        cure: "run scripts/build-cluster, or use --programs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn script(name: &str) -> String {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
        fs::read_to_string(directory.join(name)).unwrap()
    }

    #[test]
    fn the_script_builds_all_programs_in_this_version() {
        let text = script("build-cluster");
        assert!(text.contains(&format!("version={VERSION}")));
        for name in BUILT {
            assert!(text.contains(name), "{name}");
        }
        assert!(text.contains(PAUSE));
    }

    #[test]
    fn a_missing_program_is_named_with_the_script() {
        let directory = tempfile::tempdir().unwrap();
        let programs = Programs::of_tests(directory.path());
        fs::create_dir(programs.binaries()).unwrap();
        for name in BUILT {
            let error = Programs::find(directory.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("/{name} is missing")), "{error}");
            assert!(error.contains("scripts/build-cluster"), "{error}");
            fs::write(programs.path(name), "").unwrap();
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(programs.path(name), mode).unwrap();
        }
        let error = Programs::find(directory.path()).unwrap_err().to_string();
        assert!(error.contains(PAUSE), "{error}");
    }
}
