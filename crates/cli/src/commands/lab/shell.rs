// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab shell`: connects this terminal to the shell in a guest of a running lab.

use std::fs::File;
use std::io::{IsTerminal, Stdin, stdin, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use quietwire_lab::STATE_DIRECTORY;
use quietwire_lab::guest::console::attach;
use quietwire_lab::up::{GuestSide, find};

use crate::exit::{Usage, stop_on_signals};
use crate::text::print;

/// Open a shell in a guest of a running lab; Ctrl-] leaves it.
#[derive(Debug, Args)]
pub(super) struct ShellArgs {
    /// Name of an element that runs in a guest.
    #[arg(value_name = "GUEST")]
    guest: String,
    /// Name of the lab. Default: the only lab that is up.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

pub(super) fn run(args: &ShellArgs) -> Result<()> {
    let guest = guest(args)?;
    let stop = stop_on_signals("the terminal may be in raw mode (run `reset`)")?;
    // Standard input is unbuffered: a buffer could keep keys that no read waits for.
    let mut keys = File::from(stdin().as_fd().try_clone_to_owned()?);
    let is_terminal = stdin().is_terminal();
    if is_terminal && stdout().is_terminal() {
        print(format!("shell of {}; Ctrl-] leaves it", args.guest))?;
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
        bail!(Usage(format!(
            "lab {} is not up yet (wait until `quietwire lab up` ends)",
            lab.name
        )));
    };
    let in_guests = state
        .elements
        .iter()
        .filter(|element| element.guest.is_some());
    let names: Vec<&str> = in_guests.map(|element| element.name.as_str()).collect();
    let guests = match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    let mut elements = state.elements.into_iter();
    if let Some(element) = elements.find(|element| element.name == args.guest) {
        return element.guest.ok_or_else(|| {
            let (name, place) = (element.name, element.place);
            Usage(format!(
                "element {name} runs on the host's kernel ({place}), so it has no shell (name a guest; guests: {guests})"
            ))
            .into()
        });
    }
    bail!(Usage(format!(
        "lab {} has no guest '{}' (guests: {guests})",
        lab.name, args.guest
    )))
}

/// The terminal in raw mode (termios(3)): every key goes to the guest, including Ctrl-C. Drop restores the former mode.
struct Raw {
    terminal: Stdin,
    before: Termios,
}

impl Raw {
    fn begin() -> Result<Self> {
        let terminal = stdin();
        let before = tcgetattr(&terminal).context("cannot read the terminal's mode")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSANOW, &raw).context("cannot set the terminal's mode")?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before) {
            tracing::error!("cannot restore the terminal's mode: {error} (run `reset`)");
        }
    }
}
