// SPDX-License-Identifier: Apache-2.0
//! `quietwire` as a CNI plugin: a container runtime calls it without arguments, with a command in the environment.

use std::io::Read as _;
use std::process::ExitCode;

use quietwire_base::text_error;
use quietwire_cluster::cni::{self, COMMAND, INPUT_MAX};

use crate::text::{print, say};

/// Returns true if a container runtime called the program.
pub(crate) fn is_called() -> bool {
    std::env::args_os().len() == 1 && std::env::var_os(COMMAND).is_some()
}

/// Executes the command in the environment, and prints its result or error on standard output, as the CNI specification requires.
/// Other messages go to standard error.
pub(crate) fn run() -> ExitCode {
    let mut input = String::new();
    let read = std::io::stdin()
        .lock()
        .take((INPUT_MAX as u64).saturating_add(1))
        .read_to_string(&mut input);
    if let Err(error) = read {
        // The read part is no complete configuration, and is refused as such.
        let error = text_error(error);
        say(format!("cannot read the network configuration: {error}"));
    }
    let variables = |name: &str| std::env::var(name).ok();
    let (text, code) = match cni::run(&variables, &input) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (error.to_json(), ExitCode::FAILURE),
    };
    if text.is_empty() {
        return code;
    }
    match print(text) {
        Ok(()) => code,
        Err(error) => {
            say(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
