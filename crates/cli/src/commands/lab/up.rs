// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab up` and `down`: labs that stay up. A background process per lab, the keeper, owns it.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quietwire_base::Deadline;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::describe;
use quietwire_lab::up::{GuestOptions, LabState, UpLab, UpOptions, find, take_down};
use quietwire_lab::{STATE_DIRECTORY, Stop};
use serde::{Deserialize, Serialize};

use super::chosen::TopologyArgs;
use crate::exit::{
    CheckFailed, MissingPrerequisite, Usage, code, require_root, stop_on_signals, waking_on_signals,
};
use crate::output::{make_directory, write_file};
use crate::text::print;
use crate::units::parse_positive_duration;

/// Start a topology as a lab. It runs until `lab down`.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    topology: TopologyArgs,
    /// Name of the lab: up to 32 letters, digits, -, _ and dots. [default: the topology's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Accelerator of the guests. [default: auto]
    #[arg(long, value_enum)]
    accelerator: Option<AcceleratorArg>,
    /// Timeout until a guest's agent answers. [default: 30s with KVM, 150s with software emulation]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    guest_timeout: Option<Duration>,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the lab's state as JSON: ports, versions, configurations, commands, threads.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AcceleratorArg {
    /// KVM if guests boot with it, otherwise software emulation.
    Auto,
    /// KVM; fail if it is unavailable.
    Kvm,
    /// Software emulation.
    Software,
}

/// Stop a lab and undo its changes.
#[derive(Debug, Args)]
pub(super) struct DownArgs {
    /// Name of the lab. Default: the only lab that is up.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Write the console output of guests to LAB-ELEMENT.console.log in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    consoles: Option<PathBuf>,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

/// Longest start of a lab without its guests: building their image takes most of it.
const START_TIMEOUT: Duration = Duration::from_secs(1200);

/// Longest start of an element, unless --guest-timeout is longer.
const ELEMENT_TIMEOUT: Duration = Duration::from_secs(240);

/// Time that the keeper has to undo a start that takes too long.
const UNDO_TIMEOUT: Duration = Duration::from_secs(120);

/// Polling interval of the keeper.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The keeper's report: the lab is up, or it failed.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Up(Box<LabState>),
    Failed { message: String, code: u8 },
}

pub(super) fn up(args: &UpArgs) -> Result<()> {
    let (graph, cpus) = args.topology.read()?;
    require_root("setting up a lab")?;
    let program = std::env::current_exe().context("path of this program")?;
    let options = UpOptions {
        name: args.name.clone().unwrap_or_else(|| graph.name.clone()),
        state_directory: args.state_directory.clone(),
        program: program.clone(),
        graph,
        cpus,
        by_plan: args.topology.has_plan(),
        guests: GuestOptions {
            accelerator: args
                .accelerator
                .map_or_else(AcceleratorChoice::default, |choice| match choice {
                    AcceleratorArg::Auto => AcceleratorChoice::Auto,
                    AcceleratorArg::Kvm => AcceleratorChoice::Kvm,
                    AcceleratorArg::Software => AcceleratorChoice::Software,
                }),
            deadline_s: args.guest_timeout.map(|deadline| deadline.as_secs_f64()),
        },
        set: None,
        stop: Stop::default(),
    };
    let stop = stop_on_signals(
        "the process of the lab may still be undoing its changes (check that with `quietwire lab clean`)",
    )?;
    // The keeper outlives this process and must not hold its standard streams open. It leads a session of its own.
    let mut keeper = Command::new(program)
        .args(["lab", "keep"])
        .in_this_group()
        .start(Streams::Pipes)
        .context("cannot start the process of the lab")?;
    keeper.set_timeout(UNDO_TIMEOUT);
    if let Some(mut stdin) = keeper.take_stdin() {
        stdin
            .write_all(&serde_json::to_vec(&options)?)
            .context("cannot send the options to the process of the lab")?;
    }
    let timeout = timeout(args, options.graph.elements.len());
    // After an error, dropping the keeper ends it, and it undoes its changes.
    let line = answer_of(&mut keeper, timeout, &stop)?;
    match serde_json::from_str(&line) {
        Ok(Answer::Up(state)) => {
            keeper.release();
            print_state(&state, args.json)
        }
        Ok(Answer::Failed { message, code: 2 }) => bail!(Usage(message)),
        Ok(Answer::Failed { message, code: 3 }) => bail!(MissingPrerequisite(message)),
        Ok(Answer::Failed { message, .. }) => bail!(CheckFailed(message)),
        Err(_) if line.is_empty() => bail!(CheckFailed(
            "the process of the lab ended without a reply (undo its changes with `quietwire lab clean`)".to_owned()
        )),
        Err(error) => bail!(CheckFailed(format!(
            "the process of the lab sent a reply of an unknown format: {error} (undo its changes with `quietwire lab clean`)"
        ))),
    }
}

/// Returns the longest start of a lab.
fn timeout(args: &UpArgs, elements: usize) -> Duration {
    let element = args.guest_timeout.unwrap_or_default().max(ELEMENT_TIMEOUT);
    let elements = u32::try_from(elements).unwrap_or(u32::MAX);
    START_TIMEOUT.saturating_add(element.saturating_mul(elements))
}

/// Returns the line that the keeper prints; empty if it ends without one.
///
/// # Errors
/// The stop flag is set, or the keeper prints nothing in time.
fn answer_of(keeper: &mut Supervised, timeout: Duration, stop: &AtomicBool) -> Result<String> {
    let stdout = keeper.take_stdout().context("the lab has no pipe")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line).map(|_| line);
        // If this fails, this process no longer waits.
        let _ = sender.send(read);
    });
    let deadline = Deadline::after(timeout);
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(line) => return line.context("cannot read the reply of the process of the lab"),
            Err(_) if stop.load(Ordering::Relaxed) => bail!(CheckFailed(
                "the start of the lab was interrupted by a signal (if changes are left, undo them with `quietwire lab clean`)".to_owned()
            )),
            Err(mpsc::RecvTimeoutError::Timeout) if !deadline.has_passed() => {}
            Err(_) => bail!(CheckFailed(format!(
                "the lab did not start within {} s (undo its changes with `quietwire lab clean`)",
                timeout.as_secs()
            ))),
        }
    }
}

fn print_state(state: &LabState, is_json: bool) -> Result<()> {
    if is_json {
        return print(serde_json::to_string_pretty(state)?);
    }
    let name = &state.name;
    let mut lines = vec![describe(&state.graph, &state.cpus)];
    // The description has the warnings about CPUs.
    let reported = state.cpus.warnings();
    let others = state.warnings.iter().filter(|all| !reported.contains(all));
    lines.extend(others.map(|warning| format!("WARNING  {warning}")));
    lines.push(String::new());
    for element in &state.elements {
        lines.push(format!("{}  {}", element.name, element.version));
    }
    lines.push(String::new());
    for (index, [first, second]) in state.tester.chains.iter().enumerate() {
        lines.push(format!(
            "chain {}  --port '{first}' --port '{second}'",
            index.saturating_add(1)
        ));
    }
    if let Some(namespace) = &state.tester.namespace {
        lines.push(format!(
            "the tester's ports are in the network namespace {namespace}"
        ));
    }
    lines.push(format!(
        "lab {name} is up; `quietwire lab check {name}` sends traffic through it, `quietwire lab down {name}` stops it"
    ));
    print(lines.join("\n"))
}

/// Runs the keeper: reads the options of the lab from standard input, starts the lab, writes the answer to standard output, and
/// waits for a signal.
pub(super) fn keep() -> Result<()> {
    let (stop, woken) = waking_on_signals()?;
    // The keeper must not receive SIGHUP and SIGINT of the terminal. setsid fails only if the process already leads a group.
    let _ = nix::unistd::setsid();
    let options: UpOptions =
        serde_json::from_reader(stdin()).map_err(|error| Usage(error.to_string()))?;
    let options = UpOptions {
        stop: Stop::from(&stop),
        ..options
    };
    let is_answered = stop_unless_reported(&stop);
    let mut lab = match UpLab::up(&options) {
        Ok(lab) => lab,
        Err(error) => {
            let error = anyhow::Error::from(error);
            let code = code(&error);
            let message = error.to_string();
            return answer(&Answer::Failed { message, code });
        }
    };
    is_answered.store(true, Ordering::Relaxed);
    // If this fails, the process that requested the lab has ended.
    answer(&Answer::Up(Box::new(lab.state().clone())))?;
    while !stop.load(Ordering::Relaxed) {
        wait_for_signal(&woken)?;
        for name in lab.look_for_dead()? {
            tracing::error!("{name} of lab {} ended unexpectedly", options.name);
        }
    }
    Ok(lab.down()?)
}

/// Waits for a signal, at most for the interval between two checks of the elements.
fn wait_for_signal(woken: &impl AsFd) -> Result<()> {
    let mut ends = [PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::MAX);
    match poll(&mut ends, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for a signal"),
    }
}

/// Stops the start of a lab if the requesting process ends, for example after Ctrl-C. The watching thread ends when the caller
/// sets the returned flag.
fn stop_unless_reported(stop: &Arc<AtomicBool>) -> Arc<AtomicBool> {
    let is_answered = Arc::new(AtomicBool::new(false));
    let (stop, heard) = (Arc::clone(stop), Arc::clone(&is_answered));
    std::thread::spawn(move || {
        while !heard.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
            if is_hung_up(&stdout()) {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    });
    is_answered
}

/// Returns true if the other end of a pipe is closed (poll(2): POLLERR is reported without a request).
fn is_hung_up(pipe: &impl AsFd) -> bool {
    let mut ends = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    poll(&mut ends, PollTimeout::ZERO).is_ok_and(|_| {
        let observed = ends[0].revents();
        observed.is_some_and(|observed| observed.contains(PollFlags::POLLERR))
    })
}

fn answer(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)
        .and_then(|()| out.flush())
        .context("cannot report the state of the lab")
}

pub(super) fn down(args: &DownArgs) -> Result<()> {
    stop_on_signals("the lab may still be going down (repeat the command)")?;
    let lab = find(&args.state_directory, args.name.as_deref())?;
    if let (Some(directory), Some(state)) = (&args.consoles, &lab.state) {
        keep_consoles(state, directory)?;
    }
    take_down(&args.state_directory, &lab)?;
    print(format!("lab {} is down", lab.name))
}

fn keep_consoles(state: &LabState, directory: &Path) -> Result<()> {
    make_directory("--consoles", directory)?;
    for (element, given) in state.consoles()? {
        let path = directory.join(format!("{}-{element}.console.log", state.name));
        write_file("--consoles", &path, given)?;
    }
    Ok(())
}
