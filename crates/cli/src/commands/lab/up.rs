// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab up` and `down`: labs that stay up, each kept by a process of its own.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::describe;
use quietwire_lab::up::{GuestOptions, LabState, UpLab, UpOptions, find, take_down};
use quietwire_lab::{STATE_DIRECTORY, Stop};
use serde::{Deserialize, Serialize};

use super::chosen::TopologyArgs;
use crate::exit::{CheckFailed, Lacking, Usage, code, on_signals, require_root};
use crate::text::print;
use crate::units::parse_positive_duration;

/// Bring a topology up. It stays until `lab down`.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    topology: TopologyArgs,
    /// Name of the lab: up to 32 letters, digits, -, _ and dots. [default: the topology's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Under what guests run. [default: auto]
    #[arg(long, value_enum)]
    accelerator: Option<AcceleratorArg>,
    /// How long each guest may take until its agent answers. [default: 30s under KVM, 150s in software emulation]
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    guest_deadline: Option<Duration>,
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print all of its state as JSON: ports, versions, configurations, commands, threads.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AcceleratorArg {
    /// KVM where guests boot under it, software emulation elsewhere.
    Auto,
    /// KVM, or none.
    Kvm,
    /// Software emulation.
    Software,
}

/// Take a lab down, with all that belongs to it.
#[derive(Debug, Args)]
pub(super) struct DownArgs {
    /// Its name; not needed where only one is up.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Keep what the consoles of its guests said, as LAB-ELEMENT.console.log in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    consoles: Option<PathBuf>,
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

/// How often the process that keeps a lab looks.
const LOOK: Duration = Duration::from_millis(100);

/// What the process that keeps a lab says when it is up, or is not to be.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Up(Box<LabState>),
    Failed { message: String, code: u8 },
}

pub(super) fn up(args: &UpArgs) -> Result<()> {
    let (graph, cpus) = args.topology.read()?;
    require_root("a lab makes namespaces and gives processes their CPUs")?;
    let program = std::env::current_exe().context("where this program is")?;
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
            deadline_s: args.guest_deadline.map(|deadline| deadline.as_secs_f64()),
        },
        set: None,
        stop: Stop::default(),
    };
    let mut keeper = Command::new(program);
    // It outlives this process, and must not hold open what this one writes to.
    keeper
        .args(["lab", "keep"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut keeper = keeper
        .spawn()
        .context("starting the process that keeps the lab")?;
    if let Some(mut stdin) = keeper.stdin.take() {
        stdin
            .write_all(&serde_json::to_vec(&options)?)
            .context("telling it what to bring up")?;
    }
    if let Some(mut warnings) = keeper.stderr.take() {
        std::thread::spawn(move || std::io::copy(&mut warnings, &mut std::io::stderr()));
    }
    let mut line = String::new();
    if let Some(stdout) = keeper.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("hearing what came up")?;
    }
    match serde_json::from_str(&line) {
        Ok(Answer::Up(state)) => tell(&state, args.json),
        Ok(Answer::Failed { message, code: 2 }) => bail!(Usage(message)),
        Ok(Answer::Failed { message, code: 3 }) => bail!(Lacking(message)),
        Ok(Answer::Failed { message, .. }) => bail!(CheckFailed(message)),
        Err(_) => bail!(CheckFailed(
            "the process that was to keep the lab ended without a word; `quietwire lab clean` undoes what it left".to_owned()
        )),
    }
}

fn tell(state: &LabState, is_json: bool) -> Result<()> {
    if is_json {
        return print(serde_json::to_string_pretty(state)?);
    }
    let name = &state.name;
    let mut lines = vec![describe(&state.graph, &state.cpus)];
    // Those of CPUs are in the description.
    let told = state.cpus.warnings();
    let others = state.warnings.iter().filter(|all| !told.contains(all));
    lines.extend(others.map(|warning| format!("WARNING  {warning}")));
    lines.push(String::new());
    for element in &state.elements {
        lines.push(format!("{}  {}", element.name, element.version));
    }
    lines.push(String::new());
    for (index, [first, second]) in state.tester.chains.iter().enumerate() {
        lines.push(format!(
            "chain {}  --port '{first}' --port '{second}'",
            index + 1
        ));
    }
    if let Some(namespace) = &state.tester.namespace {
        lines.push(format!(
            "the tester's ports are in the network namespace {namespace}"
        ));
    }
    lines.push(format!(
        "lab {name} is up; `quietwire lab check {name}` sends traffic through it, `quietwire lab down {name}` ends it"
    ));
    print(lines.join("\n"))
}

/// Keeps a lab: what to bring up comes on standard input, what came up goes to standard output, and then it stays until it is
/// told to end.
pub(super) fn keep() -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    // A terminal that is closed, and Ctrl-C there, are not for this one. It leads its group already where it cannot.
    let _ = nix::unistd::setsid();
    let options: UpOptions =
        serde_json::from_reader(stdin()).map_err(|error| Usage(error.to_string()))?;
    let options = UpOptions {
        stop: Stop::from(&stop),
        ..options
    };
    let is_answered = stop_unless_heard(&stop);
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
    // Nobody is there any more who wanted it.
    answer(&Answer::Up(Box::new(lab.state().clone())))?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        for name in lab.look_for_dead()? {
            tracing::error!("{name} of lab {} has ended by itself", options.name);
        }
    }
    Ok(lab.down()?)
}

/// Gives up what comes up once nobody waits for it any more, as after Ctrl-C. It ends by itself once what it gives is set.
fn stop_unless_heard(stop: &Arc<AtomicBool>) -> Arc<AtomicBool> {
    let is_answered = Arc::new(AtomicBool::new(false));
    let (stop, heard) = (Arc::clone(stop), Arc::clone(&is_answered));
    std::thread::spawn(move || {
        while !heard.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
            if is_hung_up(&stdout()) {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(LOOK);
        }
    });
    is_answered
}

/// Whether the other end of a pipe is closed (poll(2): POLLERR, which needs not be asked for).
fn is_hung_up(pipe: &impl AsFd) -> bool {
    let mut ends = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    poll(&mut ends, PollTimeout::ZERO).is_ok_and(|_| {
        let seen = ends[0].revents();
        seen.is_some_and(|seen| seen.contains(PollFlags::POLLERR))
    })
}

fn answer(answer: &Answer) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)
        .and_then(|()| out.flush())
        .context("nobody hears what came up")
}

pub(super) fn down(args: &DownArgs) -> Result<()> {
    let lab = find(&args.state_directory, args.name.as_deref())?;
    if let (Some(directory), Some(state)) = (&args.consoles, &lab.state) {
        keep_consoles(state, directory)?;
    }
    take_down(&args.state_directory, &lab)?;
    print(format!("lab {} is down", lab.name))
}

fn keep_consoles(state: &LabState, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (element, said) in state.consoles()? {
        let path = directory.join(format!("{}-{element}.console.log", state.name));
        std::fs::write(&path, said).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
