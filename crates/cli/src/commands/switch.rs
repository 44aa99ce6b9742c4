// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch`: run the data plane, and look at a running one.

mod answers;
mod bridging;
mod capture;
mod change;
mod cycles;
mod packet;
mod router;
mod rules;
mod stats;
mod table;
mod tables;
mod trace;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_host::threads::online_cpus;
use quietwire_switch::config::bridging::BridgingSetting;
use quietwire_switch::config::rules::RuleFile;
use quietwire_switch::config::{
    BridgeSetting, CONTROL_SOCKET_DEFAULT, CrossConnectSetting, HugePages, Idle, Pinning, Place,
    PortSetting, Settings,
};
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::{Switch, SwitchError};

use crate::exit::{CheckFailed, Usage, on_signals, require_memory};
use crate::text::print;
use crate::units::{parse_duration, parse_path};
use answers::OTHER_VERSION;

/// The userspace data plane: forward packets between ports.
#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    command: SwitchCommand,
}

#[derive(Debug, Subcommand)]
enum SwitchCommand {
    Run(Box<RunArgs>),
    Show(ShowArgs),
    Add(change::AddArgs),
    Del(change::DelArgs),
    Set(change::SetArgs),
    Flush(change::FlushArgs),
    Rebalance(change::RebalanceArgs),
    Capture(capture::CaptureArgs),
    Trace(trace::TraceArgs),
}

/// Forward packets until told to end (SIGINT, SIGTERM or SIGHUP).
#[derive(Debug, Args)]
struct RunArgs {
    /// Read all this from a TOML file, in which the keys are the options' names; an option given here wins.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A port: its name, and where it is, such as memif:/path?role=server, vhost:/path or pci:0000:17:00.0.
    #[arg(long = "port", value_name = "NAME=URI", value_parser = parse_port)]
    ports: Vec<PortSetting>,
    /// Two ports joined: what comes in on one goes out on the other.
    #[arg(long = "cross-connect", value_name = "A,B", value_parser = parse_cross_connect)]
    cross_connects: Vec<CrossConnectSetting>,
    /// Ports in one learning bridge.
    #[arg(long = "bridge", value_name = "NAME=A,B,…", value_parser = parse_bridge)]
    bridges: Vec<BridgeSetting>,
    /// Read the rules about which frames ports let in from a TOML file of their own, in place of those of --config.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// CPUs that poll ports, one thread each, like 3,4,8-11 or 0x60. The highest CPU by default.
    #[arg(long, value_name = "LIST")]
    forwarding_cpus: Option<CpuList>,
    /// CPUs for the clock and for ageing. All but the forwarding ones by default.
    #[arg(long, value_name = "LIST")]
    service_cpus: Option<CpuList>,
    /// CPUs for the control socket and for DPDK's own threads. All but the forwarding ones by default.
    #[arg(long, value_name = "LIST")]
    control_cpus: Option<CpuList>,
    /// Descriptors of each receive queue, a power of two from 32 to 16384. [default: 1024]
    #[arg(long, value_name = "N")]
    rx_ring_size: Option<u16>,
    /// Descriptors of each transmit queue, a power of two from 32 to 16384. [default: 1024]
    #[arg(long, value_name = "N")]
    tx_ring_size: Option<u16>,
    /// Largest frame, octets with FCS, 64 to 9216. [default: 1518]
    #[arg(long, value_name = "N")]
    frame_size_max: Option<u16>,
    /// What a forwarding thread does when no frame has come. [default: poll]
    #[arg(long, value_name = "IDLE", value_parser = idle_values())]
    idle: Option<Idle>,
    /// Whether threads stay on the CPUs of their roles. [default: roles]
    #[arg(long, value_enum)]
    pinning: Option<PinningArg>,
    /// Whether to use huge pages. [default: auto]
    #[arg(long, value_enum)]
    huge_pages: Option<HugePagesArg>,
    /// Memory for frames, MiB. [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    memory_mib: Option<u32>,
    /// Where `quietwire switch show` finds this switch. [default: /run/quietwire/switch.sock]
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    control_socket: Option<PathBuf>,
    /// Where Prometheus asks for counters, over HTTP at /metrics: an address and a port, like 127.0.0.1:9475. Nowhere by
    /// default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Addresses that each bridge can learn. [default: 65536]
    #[arg(long, value_name = "N")]
    max_entries: Option<u32>,
    /// Seconds after which a bridge forgets an address that it has not seen. [default: 300]
    #[arg(long, value_name = "N")]
    ageing_s: Option<u32>,
    /// End when the process that started the switch ends, however it ends.
    #[arg(long)]
    exit_with_parent: bool,
}

/// What a forwarding thread can do without frames, by name.
fn idle_values() -> impl TypedValueParser<Value = Idle> {
    let value = |idle: Idle| PossibleValue::new(idle.name()).help(idle.summary());
    PossibleValuesParser::new(Idle::ALL.map(value)).try_map(|name| name.parse::<Idle>())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PinningArg {
    /// Each thread on the CPUs of its role.
    Roles,
    /// Where the scheduler puts them.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HugePagesArg {
    /// Where enough are free.
    Auto,
    /// Never.
    Never,
    /// Too few are an error.
    Require,
}

/// Interval of `show stats --watch` without --for.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Look at a running switch.
#[derive(Debug, Args)]
struct ShowArgs {
    /// What to show.
    #[arg(value_enum)]
    subject: SubjectArg,
    /// Of routes: the VRF. [default: main]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Of routes: those within this prefix only.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<IpNet>,
    /// Of routes: so many at most.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Of cycles and stats: what is counted in this time from now on, like 1s; stats with rates per second. Default: since the
    /// start.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Of stats: again and again until a signal ends it, each time those of the last second or of the time of --for.
    #[arg(long)]
    watch: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// Which switch: its control socket.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    control_socket: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SubjectArg {
    /// Ports, links and traffic.
    #[value(alias = "port")]
    Ports,
    /// Addresses that bridges have learned.
    Fdb,
    /// Threads, their roles and CPUs.
    #[value(alias = "thread")]
    Threads,
    /// All counters.
    Stats,
    /// Receive queues: who serves them, and what that costs.
    #[value(alias = "queue")]
    Queues,
    /// Where forwarding threads' time goes, step by step, and how many frames a look at a queue finds.
    Cycles,
    /// Receive queues that went to another thread, when and why.
    Moves,
    /// VLANs of bridges, and their ports.
    #[value(alias = "vlan")]
    Vlans,
    /// VRFs, their interfaces, and how many routes they have.
    #[value(alias = "vrf")]
    Vrfs,
    /// Interfaces of the router.
    #[value(alias = "interface")]
    Interfaces,
    /// Routes of a VRF.
    #[value(alias = "route")]
    Routes,
    /// Neighbours on the links of interfaces.
    #[value(aliases = ["neighbour", "neighbors", "neighbor"])]
    Neighbours,
    /// Rules about what the kernel gets, and what they have matched.
    #[value(alias = "kernel-filter")]
    KernelFilters,
    /// Rules about which frames ports let in, and what they have decided on.
    #[value(alias = "rule")]
    Rules,
    /// Addresses that move from port to port more often than they may.
    Flapping,
    /// The configuration, as a file that asks for the same.
    Config,
}

pub(crate) fn run(args: SwitchArgs) -> Result<()> {
    match args.command {
        SwitchCommand::Run(args) => run_switch(&args),
        SwitchCommand::Show(args) => show(&args),
        SwitchCommand::Add(args) => change::add(args),
        SwitchCommand::Del(args) => change::del(args),
        SwitchCommand::Set(args) => change::set(args),
        SwitchCommand::Flush(args) => change::flush(args),
        SwitchCommand::Rebalance(args) => change::rebalance(&args),
        SwitchCommand::Capture(args) => capture::capture(&args),
        SwitchCommand::Trace(args) => trace::trace(&args),
    }
}

fn run_switch(args: &RunArgs) -> Result<()> {
    if args.exit_with_parent {
        exit_with_parent()?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    let settings = all_settings(args)?;
    let plan = settings
        .clone()
        .plan(&online_cpus(std::path::Path::new("/"))?)?;
    for port in plan.idle_ports() {
        tracing::warn!(
            "port '{port}' is in no cross-connect and no bridge: its frames are dropped until it is"
        );
    }
    require_memory(plan.memory_mib)?;
    let switch = match Switch::start(&settings, &plan, &stop) {
        // Threads that were told to end do not answer those that wait for them to be ready.
        Err(SwitchError::Thread { .. }) if stop.load(Ordering::Relaxed) => {
            tracing::info!("ended before it was up");
            return Ok(());
        }
        started => started?,
    };
    tracing::info!(
        "forwarding between {} ports on CPUs {}; `quietwire switch show stats` asks on {}",
        plan.ports.len(),
        plan.forwarding_cpus,
        plan.control_socket.display()
    );
    switch.wait()?;
    tracing::info!("ended");
    Ok(())
}

fn all_settings(args: &RunArgs) -> Result<Settings, SwitchError> {
    let file = match &args.config {
        Some(path) => Settings::read(path)?,
        None => Settings::default(),
    };
    let rules = match &args.rules {
        Some(path) => RuleFile::read(path)?.settings(),
        None => Settings::default(),
    };
    Ok(settings(args).over(rules).over(file))
}

fn settings(args: &RunArgs) -> Settings {
    Settings {
        ports: given(&args.ports),
        cross_connects: given(&args.cross_connects),
        bridges: given(&args.bridges),
        forwarding_cpus: args.forwarding_cpus.clone(),
        service_cpus: args.service_cpus.clone(),
        control_cpus: args.control_cpus.clone(),
        rx_ring_size: args.rx_ring_size,
        tx_ring_size: args.tx_ring_size,
        frame_size_max: args.frame_size_max,
        idle: args.idle,
        pinning: args.pinning.map(|pinning| match pinning {
            PinningArg::Roles => Pinning::Roles,
            PinningArg::None => Pinning::None,
        }),
        huge_pages: args.huge_pages.map(|pages| match pages {
            HugePagesArg::Auto => HugePages::Auto,
            HugePagesArg::Never => HugePages::Never,
            HugePagesArg::Require => HugePages::Require,
        }),
        memory_mib: args.memory_mib,
        control_socket: args.control_socket.clone(),
        metrics: args.metrics,
        max_entries: args.max_entries,
        ageing_s: args.ageing_s,
        ..Settings::default()
    }
}

fn given<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn parse_port(text: &str) -> Result<PortSetting, String> {
    let (name, uri) = text
        .split_once('=')
        .filter(|(name, _)| !name.contains(':'))
        .ok_or("write NAME=URI, like left=memif:/run/left.sock?role=server")?;
    Ok(PortSetting {
        name: name.to_owned(),
        uri: uri.to_owned(),
        rx_queues: None,
        tx_queues: None,
        rx_cpus: None,
        bridging: BridgingSetting::default(),
        place: Place::Option("--port"),
    })
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn parse_cross_connect(text: &str) -> Result<CrossConnectSetting, String> {
    Ok(CrossConnectSetting {
        ports: names(text),
        place: Place::Option("--cross-connect"),
    })
}

fn parse_bridge(text: &str) -> Result<BridgeSetting, String> {
    let (name, ports) = text
        .split_once('=')
        .ok_or("write NAME=A,B,…, like lan=a,b,c")?;
    Ok(BridgeSetting {
        name: name.to_owned(),
        ports: names(ports),
        max_entries: None,
        ageing_s: None,
        flooding: None,
        place: Place::Option("--bridge"),
    })
}

/// Asks the kernel for SIGTERM when the parent ends (PR_SET_PDEATHSIG of prctl(2)). The parent may end just before.
fn exit_with_parent() -> Result<()> {
    let parent = nix::unistd::getppid();
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)
        .context("--exit-with-parent: the kernel refused")?;
    if nix::unistd::getppid() != parent {
        return Err(CheckFailed("the parent process ended already".to_owned()).into());
    }
    Ok(())
}

fn show(args: &ShowArgs) -> Result<()> {
    if args.watch && !matches!(args.subject, SubjectArg::Stats) {
        bail!(Usage(
            "--watch is for `switch show stats`; leave it out".to_owned()
        ));
    }
    let subject = match args.subject {
        SubjectArg::Ports => Subject::Ports,
        SubjectArg::Fdb => Subject::Fdb,
        SubjectArg::Threads => Subject::Threads,
        SubjectArg::Stats if args.watch || args.interval.is_some() => {
            let length = args.interval.unwrap_or(WATCH_INTERVAL);
            return stats::watch(&args.control_socket, length, args.watch, args.json);
        }
        SubjectArg::Stats => Subject::Stats,
        SubjectArg::Queues => Subject::Queues,
        SubjectArg::Moves => Subject::Moves,
        SubjectArg::Cycles => return show_cycles(args),
        SubjectArg::Routes => return show_routes(args),
        SubjectArg::Vrfs => Subject::Vrfs,
        SubjectArg::Interfaces => Subject::Interfaces,
        SubjectArg::Neighbours => Subject::Neighbours,
        SubjectArg::KernelFilters => Subject::KernelFilters,
        SubjectArg::Rules => Subject::Rules,
        SubjectArg::Vlans => Subject::Vlans,
        SubjectArg::Flapping => Subject::Flapping,
        SubjectArg::Config => Subject::Config,
    };
    let answer = ask(&args.control_socket, &Request::Show(subject))?;
    let text = if args.json {
        serde_json::to_string_pretty(&answer)?
    } else {
        tables::render(subject, answer).context(OTHER_VERSION)?
    };
    print(text)
}

fn show_cycles(args: &ShowArgs) -> Result<()> {
    let report = cycles::observe(&args.control_socket, args.interval)?;
    print(if args.json {
        serde_json::to_string_pretty(&report)?
    } else {
        cycles::render(&report)
    })
}

fn show_routes(args: &ShowArgs) -> Result<()> {
    let request = Request::ShowRoutes {
        vrf: args.vrf.clone(),
        prefix: args.prefix,
        limit: args.limit,
    };
    let answer = ask(&args.control_socket, &request)?;
    print(if args.json {
        serde_json::to_string_pretty(&answer)?
    } else {
        tables::routes(&serde_json::from_value(answer).context(OTHER_VERSION)?)
    })
}
