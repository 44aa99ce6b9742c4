// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab shell`: this terminal joined with the shell in a guest of a lab that is up.

use std::fs::File;
use std::io::{IsTerminal, Stdin, stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use quietwire_lab::STATE_DIRECTORY;
use quietwire_lab::guest::console::attach;
use quietwire_lab::up::{GuestSide, find};

use crate::exit::{Usage, on_signals};
use crate::text::print;

/// A shell in a guest of a lab that is up; Ctrl-] leaves it.
#[derive(Debug, Args)]
pub(super) struct ShellArgs {
    /// The element that is in a guest.
    #[arg(value_name = "GUEST")]
    guest: String,
    /// The lab; not needed where only one is up.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

pub(super) fn run(args: &ShellArgs) -> Result<()> {
    let guest = guest(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    // Without a buffer, in which keys would lie that nobody waits for.
    let mut keys = File::from(stdin().as_fd().try_clone_to_owned()?);
    let is_terminal = stdin().is_terminal();
    if is_terminal && stdout().is_terminal() {
        print(format!("the shell of {}; Ctrl-] leaves it", args.guest))?;
    }
    let _raw = is_terminal.then(Raw::begin).transpose()?;
    Ok(attach(
        &guest.shell_socket,
        &mut keys,
        &mut stdout().lock(),
        &stop,
    )?)
}

fn guest(args: &ShellArgs) -> Result<GuestSide> {
    let lab = find(&args.state_directory, args.name.as_deref())?;
    let Some(state) = lab.state else {
        bail!(Usage(format!("lab {} is not up yet", lab.name)));
    };
    let mut elements = state.elements.into_iter();
    if let Some(element) = elements.find(|element| element.name == args.guest) {
        return element.guest.ok_or_else(|| {
            let (name, place) = (element.name, element.place);
            Usage(format!(
                "{name} runs on this machine's own kernel ({place}), so there is no guest to have a shell in"
            ))
            .into()
        });
    }
    let all = &state.graph.elements;
    let names: Vec<&str> = all.iter().map(|element| element.name.as_str()).collect();
    bail!(Usage(format!(
        "lab {} has no guest '{}'; there are {}",
        lab.name,
        args.guest,
        names.join(", ")
    )))
}

/// The terminal in raw mode (termios(3)): every key goes to the guest, Ctrl-C too. Dropped, it is as it was.
struct Raw {
    terminal: Stdin,
    before: Termios,
}

impl Raw {
    fn begin() -> Result<Self> {
        let terminal = stdin();
        let before = tcgetattr(&terminal).context("reading the terminal's mode")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSANOW, &raw).context("setting the terminal's mode")?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before) {
            tracing::error!("the terminal's mode could not be set back: {error}; `reset` does it");
        }
    }
}
