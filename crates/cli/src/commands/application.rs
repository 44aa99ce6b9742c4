// SPDX-License-Identifier: Apache-2.0
//! `quietwire application`: TCP throughput and round-trip times of a path, measured through the kernel as applications see
//! them.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use quietwire_lab::NetNs;
use quietwire_lab::iperf::{self, IperfDirection, IperfOptions, IperfResult};
use quietwire_tester::echo::{self, EchoOptions, EchoResult, EchoServer, EchoTransport};

use crate::exit::{CheckFailed, MissingPrerequisite, Usage, require_root, stop_on_signals};
use crate::text::print;
use crate::units::{parse_duration, parse_positive_duration};

/// Measure a path as applications see it: TCP throughput (iperf3) and echo round-trip times.
#[derive(Debug, Args)]
pub(crate) struct ApplicationArgs {
    #[command(subcommand)]
    command: ApplicationCommand,
}

#[derive(Debug, Subcommand)]
enum ApplicationCommand {
    Iperf(IperfArgs),
    Echo(EchoArgs),
    EchoServer(EchoServerArgs),
}

/// Measure TCP throughput between two network namespaces with iperf3. The command starts and stops server and client.
#[derive(Debug, Args)]
struct IperfArgs {
    /// Server address that the client connects to.
    #[arg(long, value_name = "ADDRESS")]
    address: IpAddr,
    /// TCP port of the server, 1 to 65535.
    #[arg(long, value_name = "PORT", default_value_t = 5201, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Network namespace of the server (`ip netns`). Default: the current one.
    #[arg(long, value_name = "NAME")]
    server_namespace: Option<String>,
    /// Network namespace of the client. Default: the current one.
    #[arg(long, value_name = "NAME")]
    client_namespace: Option<String>,
    /// Direction of the data.
    #[arg(long, value_enum, default_value = "both")]
    direction: Direction,
    /// Duration of each direction, whole seconds.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Parallel connections, 1 to 128.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=128))]
    streams: u8,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
    /// Up, then down.
    Both,
}

/// Measure round-trip times to an echo service with scheduled requests.
#[derive(Debug, Args)]
struct EchoArgs {
    /// Address and port of the service, such as `10.0.0.2:7007` or `[fd00::2]:7007`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Start the service in this network namespace. Default: use a running service.
    #[arg(long, value_name = "NAME")]
    server_namespace: Option<String>,
    /// Start the service in the current network namespace.
    #[arg(long, conflicts_with = "server_namespace")]
    with_server: bool,
    /// Network namespace of the client. Default: the current one.
    #[arg(long, value_name = "NAME")]
    client_namespace: Option<String>,
    /// Transport protocol of the requests.
    #[arg(long, value_enum, default_value = "udp")]
    transport: Transport,
    /// Payload of a request, octets, 16 to 65507.
    #[arg(long, value_name = "OCTETS", default_value_t = 64, value_parser = clap::value_parser!(u16).range(i64::from(echo::PAYLOAD_MIN)..=i64::from(echo::PAYLOAD_MAX)))]
    payload: u16,
    /// Interval between requests; 0s sends the next request after a reply or its timeout.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration)]
    interval: Duration,
    /// Time during which requests are sent.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Timeout of a reply.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    timeout: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Udp,
    Tcp,
}

/// Run an echo service over UDP and TCP until SIGINT, SIGTERM or SIGHUP.
#[derive(Debug, Args)]
struct EchoServerArgs {
    /// Listen address and port, such as 0.0.0.0:7007.
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Network namespace (`ip netns`). Default: the current one.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

pub(crate) fn run(args: &ApplicationArgs) -> Result<()> {
    let abort = stop_on_signals("")?;
    match &args.command {
        ApplicationCommand::Iperf(args) => run_iperf(args, &abort),
        ApplicationCommand::Echo(args) => run_echo(args, &abort),
        ApplicationCommand::EchoServer(args) => run_echo_server(args, &abort),
    }
}

/// Returns the place of a namespace. Fails if another namespace is named and the user is not root.
fn place(namespace: Option<&str>) -> Result<NetNs> {
    let place = NetNs::of(namespace)?;
    if place != NetNs::Current {
        require_root("entering a network namespace")?;
    }
    Ok(place)
}

fn run_iperf(args: &IperfArgs, abort: &AtomicBool) -> Result<()> {
    if args.duration.subsec_nanos() != 0 {
        bail!(Usage(format!(
            "--duration is {} s, but iperf3 accepts whole seconds only (round it)",
            args.duration.as_secs_f64()
        )));
    }
    let options = IperfOptions {
        server: place(args.server_namespace.as_deref())?,
        client: place(args.client_namespace.as_deref())?,
        address: args.address,
        port: args.port,
        duration: args.duration,
        streams: args.streams,
    };
    let ways: &[IperfDirection] = match args.direction {
        Direction::Up => &[IperfDirection::Up],
        Direction::Down => &[IperfDirection::Down],
        Direction::Both => &[IperfDirection::Up, IperfDirection::Down],
    };
    let results = ways
        .iter()
        .map(|direction| iperf::run(&options, *direction, abort))
        .collect::<Result<Vec<IperfResult>, _>>()?;
    if args.json {
        return print(serde_json::to_string_pretty(&results)?);
    }
    let lines: Vec<String> = results.iter().map(iperf_line).collect();
    print(lines.join("\n"))
}

fn iperf_line(result: &IperfResult) -> String {
    let direction = match result.direction {
        IperfDirection::Up => "up",
        IperfDirection::Down => "down",
    };
    let count =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let rtt = result
        .mean_rtt_us
        .map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.0}"));
    format!(
        "{direction:5}{:>12.3} Mbit/s over {:.2} s, {} retransmitted, mean round trip {rtt} us, CPU {:.0} % client, {:.0} % server",
        result.received_bps / 1e6,
        result.elapsed_s,
        count(result.retransmits),
        result.client_cpu_percent,
        result.server_cpu_percent
    )
}

fn run_echo(args: &EchoArgs, abort: &AtomicBool) -> Result<()> {
    let client = place(args.client_namespace.as_deref())?;
    let options = EchoOptions {
        server: args.address,
        transport: match args.transport {
            Transport::Udp => EchoTransport::Udp,
            Transport::Tcp => EchoTransport::Tcp,
        },
        payload_octets: args.payload,
        duration: args.duration,
        interval: args.interval,
        timeout: args.timeout,
    };
    let ask = || client.enter(|| echo::run(&options, abort));
    let result = if args.with_server || args.server_namespace.is_some() {
        let server = serve(&place(args.server_namespace.as_deref())?, args.address)?;
        let done = AtomicBool::new(false);
        scope(|scope| {
            let serving = scope.spawn(|| server.serve(&done));
            let result = ask();
            done.store(true, Ordering::Relaxed);
            let served = serving.join();
            served
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("the echo service failed")?;
            anyhow::Ok(result?)
        })?
    } else {
        ask()?
    };
    let result = result.map_err(of_echo)?;
    if args.json {
        print(serde_json::to_string_pretty(&result)?)?;
    } else {
        print(echo_text(&result))?;
    }
    if result.replies == 0 {
        bail!(CheckFailed(format!(
            "no reply to any of {} requests to {} within the timeout (check that an echo service runs there, or increase --timeout)",
            result.requests, result.server
        )));
    }
    Ok(())
}

fn run_echo_server(args: &EchoServerArgs, abort: &AtomicBool) -> Result<()> {
    let server = serve(&place(args.namespace.as_deref())?, args.address)?;
    print(format!("echo service at {}", server.address()))?;
    server.serve(abort).context("the echo service failed")
}

/// Binds an echo service inside a place. Its sockets stay in that network namespace.
fn serve(place: &NetNs, address: SocketAddr) -> Result<EchoServer> {
    place.enter(|| EchoServer::bind(address))?.map_err(of_echo)
}

/// Converts an error of the echo service, which chooses the exit code: an address that this machine does not have is a usage
/// error.
fn of_echo(error: echo::EchoError) -> anyhow::Error {
    use std::io::ErrorKind;
    match &error {
        echo::EchoError::BadInput(_) => Usage(error.to_string()).into(),
        echo::EchoError::Bind { error: cause, .. } => match cause.kind() {
            ErrorKind::AddrNotAvailable => Usage(error.to_string()).into(),
            ErrorKind::PermissionDenied => MissingPrerequisite(error.to_string()).into(),
            _ => error.into(),
        },
        _ => error.into(),
    }
}

fn echo_text(result: &EchoResult) -> String {
    let times = &result.round_trip;
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    let names = ["p50", "p90", "p99", "p99.9", "p99.99"];
    let percentiles = names.iter().zip(times.percentiles()).map(|(name, value)| {
        // The distribution has too few samples for this percentile.
        let value = value.map_or_else(|| "-".to_owned(), |ns| us(ns as f64));
        format!("{name} {value}")
    });
    let percentiles: Vec<String> = percentiles.collect();
    let mut lines = vec![format!(
        "requests   {:>10}  answered {}, lost {}, late replies {}",
        result.requests, result.replies, result.lost, result.late_replies
    )];
    if times.samples > 0 {
        lines.push(format!(
            "round trip {:>10} samples, us: min {}  mean {}  max {}",
            times.samples,
            us(times.min_ns as f64),
            us(times.mean_ns),
            us(times.max_ns as f64)
        ));
        lines.push(format!("           {}", percentiles.join("  ")));
    }
    lines.join("\n")
}
