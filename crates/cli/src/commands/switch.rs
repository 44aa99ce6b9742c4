// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch`: runs the data plane, and shows and changes a running one.

mod answers;
mod bridging;
mod capture;
mod change;
mod confirm;
mod connections;
mod cycles;
mod load_balancer;
mod mappings;
mod nat;
mod packet;
mod replication;
mod router;
mod rules;
mod ruleset;
mod sets;
mod stats;
mod steer;
mod steered;
mod table;
mod tables;
mod trace;
mod watch;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_host::threads::online_cpus;
use quietwire_switch::config::bridging::BridgingSetting;
use quietwire_switch::config::rules::{RuleFile, SetName};
use quietwire_switch::config::{
    BridgeSetting, CONTROL_SOCKET_DEFAULT, CrossConnectSetting, HugePages, Idle, LaterPorts,
    Location, Pinning, PortSetting, Seccomp, Settings,
};
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::{MoveReport, RoutesReport, RulesReport};
use quietwire_switch::{Switch, SwitchError};

use crate::exit::{CheckFailed, Usage, require_memory, waking_on_signals};
use crate::text::print;
use crate::units::{parse_duration, parse_path, seccomp_values};
use answers::OTHER_VERSION;

/// Run, show and change the userspace data plane.
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
    #[command(visible_alias = "remove")]
    Del(change::DelArgs),
    Set(change::SetArgs),
    Flush(change::FlushArgs),
    Connections(connections::ConnectionsArgs),
    Mappings(mappings::MappingsArgs),
    Rebalance(change::RebalanceArgs),
    Rules(ruleset::RulesetArgs),
    Steer(steer::SteerArgs),
    Capture(capture::CaptureArgs),
    Trace(trace::TraceArgs),
}

/// Forward packets between ports until SIGINT, SIGTERM or SIGHUP.
#[derive(Debug, Args)]
struct RunArgs {
    /// Configuration file (TOML) whose keys are the options' names; options override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name and URI of a port, such as p0=memif:/path?role=server, p1=vhost:/path or p2=pci:0000:17:00.0.
    #[arg(long = "port", value_name = "NAME=URI", value_parser = parse_port)]
    ports: Vec<PortSetting>,
    /// Connect two ports: forward every frame received on one to the other.
    #[arg(long = "cross-connect", value_name = "A,B", value_parser = parse_cross_connect)]
    cross_connects: Vec<CrossConnectSetting>,
    /// Name and ports of a learning bridge.
    #[arg(long = "bridge", value_name = "NAME=A,B,…", value_parser = parse_bridge)]
    bridges: Vec<BridgeSetting>,
    /// Read filter rules from this TOML file instead of --config.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// CPUs that poll ports, one thread each, like 3,4,8-11 or 0x60. Default: the highest CPU without another role.
    #[arg(long, value_name = "LIST")]
    forwarding_cpus: Option<CpuList>,
    /// CPUs for the service thread (timers, ageing). Default: all non-forwarding CPUs.
    #[arg(long, value_name = "LIST")]
    service_cpus: Option<CpuList>,
    /// CPUs for the control socket and DPDK's threads. Default: all non-forwarding CPUs.
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
    /// Action of forwarding threads between polls without frames. [default: poll]
    #[arg(long, value_name = "IDLE", value_parser = idle_values())]
    idle: Option<Idle>,
    /// Pinning of threads to the CPUs of their roles. [default: roles]
    #[arg(long, value_enum)]
    pinning: Option<PinningArg>,
    /// Use of huge pages. [default: auto]
    #[arg(long, value_enum)]
    huge_pages: Option<HugePagesArg>,
    /// Memory for frames, MiB, at least 1. [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    memory_mib: Option<u32>,
    /// Control socket for `quietwire switch show` and other commands. [default: /run/quietwire/switch.sock]
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    control_socket: Option<PathBuf>,
    /// Become this user after opening the control socket, keeping only the rights that ports require. [default: root with these
    /// rights]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Seccomp filters, which restrict the system calls of each thread. [default: enforce]
    #[arg(long, value_name = "MODE", value_parser = seccomp_values())]
    seccomp: Option<Seccomp>,
    /// Kinds of ports that may be added later, like memif,tap,netns, any or none. The switch drops the rights of others. [default: any]
    #[arg(long, value_name = "KINDS")]
    later_ports: Option<LaterPorts>,
    /// Serve Prometheus metrics at http://ADDRESS:PORT/metrics, like 127.0.0.1:9475. Default: disabled.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Maximum number of addresses per bridge. [default: 65536]
    #[arg(long, value_name = "N")]
    max_entries: Option<u32>,
    /// Ageing time of learned addresses, seconds. [default: 300]
    #[arg(long, value_name = "N")]
    ageing_s: Option<u32>,
    /// Let the kernel forward between veth ports of the same bridge. [default: true if the switch keeps the rights]
    #[arg(long, value_name = "BOOL")]
    kernel_forwarding: Option<bool>,
    /// Exit when the parent process exits.
    #[arg(long)]
    exit_with_parent: bool,
}

/// Returns the parser of `--idle` by name.
fn idle_values() -> impl TypedValueParser<Value = Idle> {
    let value = |idle: Idle| PossibleValue::new(idle.name()).help(idle.summary());
    PossibleValuesParser::new(Idle::ALL.map(value)).try_map(|name| name.parse::<Idle>())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PinningArg {
    /// Pin each thread to the CPUs of its role.
    Roles,
    /// Leave the placement to the scheduler.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HugePagesArg {
    /// Use huge pages if enough are free.
    Auto,
    /// Never use huge pages.
    Never,
    /// Fail if too few huge pages are free.
    Require,
}

/// Interval of `show stats --watch` without --for.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Show the state of a running switch.
#[derive(Debug, Args)]
struct ShowArgs {
    /// Subject to show.
    #[arg(value_enum)]
    subject: SubjectArg,
    /// VRF of the routes (routes only). [default: main]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Show only routes within this prefix (routes only).
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<IpNet>,
    #[command(flatten)]
    connections: connections::SelectionArgs,
    /// Maximum number of routes, rules, elements of sets, connections or mappings to show.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Number of the first rule or element to show, from 0; for connections and mappings, `next` of the page before (rules, sets,
    /// connections and mappings only).
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: usize,
    /// Show only the elements of this set (sets only). [default: all sets]
    #[arg(long, value_name = "NAME")]
    set: Option<SetName>,
    /// Count for this time from now on, like 1s (cycles and stats only; stats add rates per second). Default: counters since the
    /// start.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Repeat every second, or every --for, until a signal (stats only).
    #[arg(long)]
    watch: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Control socket of the switch.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    control_socket: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SubjectArg {
    /// Ports, links and traffic.
    #[value(alias = "port")]
    Ports,
    /// Forwarding databases (FDB) of bridges.
    Fdb,
    /// Threads, their roles and CPUs.
    #[value(alias = "thread")]
    Threads,
    /// All counters.
    Stats,
    /// Receive queues, their threads and load.
    #[value(alias = "queue")]
    Queues,
    /// CPU cycles of forwarding threads per step, and burst sizes of receive queues.
    Cycles,
    /// Moves of receive queues between threads, with time and reason.
    Moves,
    /// VLANs of bridges, and their ports.
    #[value(alias = "vlan")]
    Vlans,
    /// VRFs, their interfaces, and their numbers of routes.
    #[value(alias = "vrf")]
    Vrfs,
    /// Interfaces of the router.
    #[value(alias = "interface")]
    Interfaces,
    /// Routes of a VRF.
    #[value(alias = "route")]
    Routes,
    /// Tracked connections, and the size of their table.
    #[value(alias = "connection")]
    Connections,
    /// Load balancers, and their backends.
    #[value(alias = "load-balancer")]
    LoadBalancers,
    /// NAT of interfaces, and its counters.
    Nat,
    /// Replication of connections to a standby, or from the active switch.
    Replication,
    /// Mappings of NAT.
    #[value(alias = "mapping")]
    Mappings,
    /// Neighbours of interfaces.
    #[value(aliases = ["neighbour", "neighbors", "neighbor"])]
    Neighbours,
    /// Kernel filter rules and their match counters.
    #[value(alias = "kernel-filter")]
    KernelFilters,
    /// Steering rules of interfaces and their counters.
    Steer,
    /// Filter rules of ports and their match counters.
    #[value(alias = "rule")]
    Rules,
    /// Sets of filter rules, their elements, and the time that elements have left.
    #[value(alias = "set")]
    Sets,
    /// Addresses that move between ports above the limit.
    Flapping,
    /// The running configuration as a configuration file.
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
        SwitchCommand::Connections(args) => connections::run(&args),
        SwitchCommand::Mappings(args) => mappings::run(&args),
        SwitchCommand::Rebalance(args) => change::rebalance(&args),
        SwitchCommand::Rules(args) => ruleset::run(args),
        SwitchCommand::Steer(args) => steer::run(args),
        SwitchCommand::Capture(args) => capture::capture(&args),
        SwitchCommand::Trace(args) => trace::trace(&args),
    }
}

fn run_switch(args: &RunArgs) -> Result<()> {
    if args.exit_with_parent {
        exit_with_parent()?;
    }
    let (stop, woken) = waking_on_signals()?;
    let settings = all_settings(args)?;
    let plan = settings
        .clone()
        .plan(&online_cpus(std::path::Path::new("/"))?)?;
    for port in plan.idle_ports() {
        tracing::warn!(
            "port '{port}' is in no cross-connect or bridge, so its frames are dropped (add it to one)"
        );
    }
    require_memory(plan.memory_mib)?;
    let switch = match Switch::start(&settings, &plan, &stop, woken.into()) {
        // After a signal, threads end without reporting that they are ready.
        Err(SwitchError::Thread { .. }) if stop.load(Ordering::Relaxed) => {
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
        started => started?,
    };
    tracing::info!(
        "{}; control socket {}",
        plan.summary(),
        plan.control_socket.display()
    );
    switch.wait()?;
    tracing::info!("stopped");
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
        ports: non_empty(&args.ports),
        cross_connects: non_empty(&args.cross_connects),
        bridges: non_empty(&args.bridges),
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
        user: args.user.clone(),
        seccomp: args.seccomp,
        later_ports: args.later_ports.clone(),
        metrics: args.metrics,
        max_entries: args.max_entries,
        ageing_s: args.ageing_s,
        kernel_forwarding: args.kernel_forwarding,
        ..Settings::default()
    }
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn parse_port(text: &str) -> Result<PortSetting, String> {
    let (name, uri) = text
        .split_once('=')
        .filter(|(name, _)| !name.contains(':'))
        .ok_or("expected NAME=URI, like left=memif:/run/left.sock?role=server")?;
    Ok(PortSetting {
        name: name.to_owned(),
        uri: uri.to_owned(),
        rx_queues: None,
        tx_queues: None,
        rx_cpus: None,
        bridging: BridgingSetting::default(),
        location: Location::Option("--port"),
    })
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn parse_cross_connect(text: &str) -> Result<CrossConnectSetting, String> {
    Ok(CrossConnectSetting {
        ports: names(text),
        location: Location::Option("--cross-connect"),
    })
}

fn parse_bridge(text: &str) -> Result<BridgeSetting, String> {
    let (name, ports) = text
        .split_once('=')
        .ok_or("expected NAME=A,B,…, like lan=a,b,c")?;
    Ok(BridgeSetting {
        name: name.to_owned(),
        ports: names(ports),
        max_entries: None,
        ageing_s: None,
        kernel_forwarding: None,
        flooding: None,
        location: Location::Option("--bridge"),
    })
}

/// Requests SIGTERM from the kernel when the parent ends (PR_SET_PDEATHSIG of prctl(2)). Fails if the parent has ended before
/// the request.
fn exit_with_parent() -> Result<()> {
    let parent = nix::unistd::getppid();
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)
        .context("--exit-with-parent: prctl(PR_SET_PDEATHSIG) failed")?;
    if nix::unistd::getppid() != parent {
        return Err(CheckFailed(
            "--exit-with-parent: the parent process has already ended".to_owned(),
        )
        .into());
    }
    Ok(())
}

fn show(args: &ShowArgs) -> Result<()> {
    if args.watch && !matches!(args.subject, SubjectArg::Stats) {
        bail!(Usage(
            "--watch is supported by `switch show stats` only (remove it)".to_owned()
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
        SubjectArg::Queues if !args.json => return show_queues(args),
        SubjectArg::Queues => Subject::Queues,
        SubjectArg::Moves => Subject::Moves,
        SubjectArg::Cycles => return show_cycles(args),
        SubjectArg::Routes => return show_routes(args),
        SubjectArg::Connections => {
            let page = (args.from, args.limit);
            let socket = &args.control_socket;
            return connections::show(&args.connections, page, socket, args.json);
        }
        SubjectArg::Mappings => {
            let page = (args.from, args.limit);
            let socket = &args.control_socket;
            return mappings::show(&args.connections, page, socket, args.json);
        }
        SubjectArg::LoadBalancers => Subject::LoadBalancers,
        SubjectArg::Nat => Subject::Nat,
        SubjectArg::Replication => Subject::Replication,
        SubjectArg::Vrfs => Subject::Vrfs,
        SubjectArg::Interfaces => Subject::Interfaces,
        SubjectArg::Neighbours => Subject::Neighbours,
        SubjectArg::KernelFilters => Subject::KernelFilters,
        SubjectArg::Steer => Subject::Steer,
        SubjectArg::Rules => return show_rules(args),
        SubjectArg::Sets => {
            let page = (args.from, args.limit);
            return sets::show(args.set.as_ref(), page, &args.control_socket, args.json);
        }
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

/// Prints the receive queues, and the moves that would balance the load of their threads.
fn show_queues(args: &ShowArgs) -> Result<()> {
    let socket = &args.control_socket;
    let queues = ask(socket, &Request::Show(Subject::Queues))?;
    let moves: Vec<MoveReport> = ask(
        socket,
        &Request::Rebalance {
            dry_run: true,
            rules: None,
        },
    )?;
    let table = tables::render(Subject::Queues, queues).context(OTHER_VERSION)?;
    print(table + &tables::suggestions(&moves))
}

fn show_cycles(args: &ShowArgs) -> Result<()> {
    let report = cycles::observe(&args.control_socket, args.interval)?;
    print(if args.json {
        serde_json::to_string_pretty(&report)?
    } else {
        cycles::render(&report)
    })
}

fn show_rules(args: &ShowArgs) -> Result<()> {
    let page = |from: usize, limit: usize| -> Result<RulesReport> {
        Ok(ask(
            &args.control_socket,
            &Request::ShowRules { from, limit },
        )?)
    };
    let mut report = page(args.from, args.limit)?;
    while let Some(from) = report.next
        && report.rules.len() < args.limit
    {
        let next = page(from, args.limit.saturating_sub(report.rules.len()))?;
        report.next = next.next;
        report.rules.extend(next.rules);
    }
    print(if args.json {
        serde_json::to_string_pretty(&report)?
    } else {
        rules::render(report)
    })
}

fn show_routes(args: &ShowArgs) -> Result<()> {
    let mut report = page_of_routes(args, args.limit, None)?;
    while let Some(after) = report.next
        && report.routes.len() < args.limit
    {
        let left = args.limit.saturating_sub(report.routes.len());
        let page = page_of_routes(args, left, Some(after))?;
        report.next = page.next;
        report.routes.extend(page.routes);
    }
    // A prefix can have several routes.
    report.routes.truncate(args.limit);
    report.next = None;
    print(if args.json {
        serde_json::to_string_pretty(&report)?
    } else {
        tables::routes(&report)
    })
}

fn page_of_routes(args: &ShowArgs, limit: usize, after: Option<IpNet>) -> Result<RoutesReport> {
    let request = Request::ShowRoutes {
        vrf: args.vrf.clone(),
        prefix: args.prefix,
        limit,
        after,
    };
    Ok(ask(&args.control_socket, &request)?)
}
