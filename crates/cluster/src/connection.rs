// SPDX-License-Identifier: Apache-2.0
//! The connection of the agent and of the controller to the API server, and their end.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, io};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use quietwire_base::read_text;
use tokio::sync::watch;

/// Interval at which the flag of a signal is read.
const STOP: Duration = Duration::from_millis(250);

/// Errors that end the agent or the controller.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The operating system refuses resources of the runtime.
    #[error("starting the runtime: {0}")]
    Runtime(#[from] io::Error),
    /// There is no API server to ask.
    #[error("configuration of the API server: {0} (use --kubeconfig, or run the command in a pod)")]
    Configuration(String),
}

/// Returns a client of the API server that a kubeconfig names. `None`: that of the pod, or of `KUBECONFIG`.
///
/// # Errors
/// [`AgentError::Configuration`].
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, AgentError> {
    let config = configuration(kubeconfig).await?;
    Client::try_from(config).map_err(|error| AgentError::Configuration(error.to_string()))
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, AgentError> {
    let failed = AgentError::Configuration;
    let Some(path) = kubeconfig else {
        let variable = env::var_os("KUBECONFIG");
        check_inferred(&inferred_files(variable.as_deref(), env::home_dir()))?;
        let inferred = Config::infer().await;
        return inferred.map_err(|error| failed(error.to_string()));
    };
    let wrong = |error: &dyn Error| failed(format!("{}: {}", path.display(), first_line(error)));
    // kube panics on a file that begins like UTF-16 and has an odd number of octets.
    read_text(path).map_err(|error| wrong(&error))?;
    let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.map_err(|error| wrong(&error))
}

/// Returns the files that kube reads without `--kubeconfig`: those of `KUBECONFIG`, otherwise that of the home directory.
fn inferred_files(variable: Option<&OsStr>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let listed = variable.into_iter().flat_map(env::split_paths);
    let listed: Vec<PathBuf> = listed.filter(|path| !path.as_os_str().is_empty()).collect();
    match listed.is_empty() {
        true => home
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect(),
        false => listed,
    }
}

/// Refuses files on which kube would panic. A file that cannot be read is left to kube, which may use the configuration of the pod.
fn check_inferred(files: &[PathBuf]) -> Result<(), AgentError> {
    for path in files {
        if let Err(error) = read_text(path)
            && error.kind() == io::ErrorKind::InvalidData
        {
            let what = format!("{}: {error}", path.display());
            return Err(AgentError::Configuration(what));
        }
    }
    Ok(())
}

/// Returns the first line of an error. Errors of YAML repeat a part of the file in the others.
fn first_line(error: &dyn Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Returns a value that becomes true soon after `stop` does.
pub(crate) fn ended(stop: &Arc<AtomicBool>) -> watch::Receiver<bool> {
    let (ending, ended) = watch::channel(false);
    let flag = Arc::clone(stop);
    tokio::spawn(async move {
        while !flag.load(Ordering::Relaxed) {
            tokio::time::sleep(STOP).await;
        }
        // Without receivers everything has ended already.
        let _ = ending.send(true);
    });
    ended
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime;

    #[test]
    fn a_kubeconfig_that_is_not_one_is_named_in_one_line() {
        let error_of = |path: &Path| {
            let end = runtime().unwrap().block_on(configuration(Some(path)));
            end.unwrap_err().to_string()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        for octets in [
            b"\xff\xfe\0" as &[u8],
            b"\xfe\xffx",
            b"\xff",
            b"x",
            b"{",
            b"",
        ] {
            fs::write(&path, octets).unwrap();
            let error = error_of(&path);
            assert!(error.contains(&*path.to_string_lossy()), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = error_of(&directory.path().join("absent"));
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn files_of_the_environment_are_checked_if_they_exist() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let config = home.join(".kube/config");
        let files = |variable: Option<&str>| {
            inferred_files(variable.map(OsStr::new), Some(home.to_owned()))
        };
        for variable in [None, Some(""), Some("::")] {
            assert_eq!(files(variable), std::slice::from_ref(&config));
        }
        assert_eq!(files(Some("/a::b")), [Path::new("/a"), Path::new("b")]);
        assert!(inferred_files(None, None).is_empty());

        assert!(check_inferred(&files(None)).is_ok());
        fs::create_dir(home.join(".kube")).unwrap();
        fs::write(&config, "apiVersion: v1\n").unwrap();
        assert!(check_inferred(&files(None)).is_ok());
        fs::write(&config, b"\xff\xfe\0").unwrap();
        let error = check_inferred(&files(None)).unwrap_err().to_string();
        assert!(error.contains("config: it is not UTF-8 text"), "{error}");
    }
}
