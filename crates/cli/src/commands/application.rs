// SPDX-License-Identifier: Apache-2.0
//! `quietwire application`: what applications see of a path: TCP throughput and round trips through the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use quietwire_lab::Place;
use quietwire_lab::iperf::{self, IperfOptions, IperfResult, Way};
use quietwire_tester::echo::{self, EchoOptions, EchoResult, EchoServer, EchoTransport};

use crate::exit::{CheckFailed, Lacking, Usage, on_signals, require_root};
use crate::text::print;
use crate::units::{parse_duration, parse_positive_duration};

/// What applications see of a path: TCP throughput by iperf3, and round trips of an echo service.
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

/// TCP throughput from one network namespace to another, by iperf3. Server and client are started, and ended.
#[derive(Debug, Args)]
struct IperfArgs {
    /// Address of the server, as the client has it.
    #[arg(long, value_name = "ADDRESS")]
    address: IpAddr,
    /// TCP port of the server.
    #[arg(long, value_name = "PORT", default_value_t = 5201, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Network namespace of the server (`ip netns`). Default: here.
    #[arg(long, value_name = "NAME")]
    server_namespace: Option<String>,
    /// Network namespace of the client. Default: here.
    #[arg(long, value_name = "NAME")]
    client_namespace: Option<String>,
    /// Which way data go; both one after the other.
    #[arg(long, value_enum, default_value = "both")]
    direction: Direction,
    /// How long data are sent each way, whole seconds.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Connections at a time, 1 to 128.
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

/// Round-trip times to an echo service, by requests on a schedule.
#[derive(Debug, Args)]
struct EchoArgs {
    /// Address and port of the service, such as `10.0.0.2:7007` or `[fd00::2]:7007`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Start the service as well, in this network namespace. Without it one has to be running.
    #[arg(long, value_name = "NAME")]
    server_namespace: Option<String>,
    /// Start the service as well, here.
    #[arg(long, conflicts_with = "server_namespace")]
    with_server: bool,
    /// Network namespace of the client. Default: here.
    #[arg(long, value_name = "NAME")]
    client_namespace: Option<String>,
    /// Over what requests go.
    #[arg(long, value_enum, default_value = "udp")]
    transport: Transport,
    /// Octets of a request, 16 to 65507.
    #[arg(long, value_name = "OCTETS", default_value_t = 64, value_parser = clap::value_parser!(u16).range(i64::from(echo::PAYLOAD_MIN)..=i64::from(echo::PAYLOAD_MAX)))]
    payload: u16,
    /// From one request to the next; 0s for the next at once.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration)]
    interval: Duration,
    /// How long requests are sent.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// How long a reply may take.
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

/// An echo service over UDP and TCP, until it is told to end.
#[derive(Debug, Args)]
struct EchoServerArgs {
    /// Address and port, such as 0.0.0.0:7007.
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Network namespace (`ip netns`). Default: here.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

pub(crate) fn run(args: &ApplicationArgs) -> Result<()> {
    let abort = Arc::new(AtomicBool::new(false));
    on_signals(&abort)?;
    match &args.command {
        ApplicationCommand::Iperf(args) => run_iperf(args, &abort),
        ApplicationCommand::Echo(args) => run_echo(args, &abort),
        ApplicationCommand::EchoServer(args) => run_echo_server(args, &abort),
    }
}

/// A place that may be entered.
fn place(namespace: Option<&str>) -> Result<Place> {
    let place = Place::of(namespace)?;
    if place != Place::Here {
        require_root("a network namespace is entered")?;
    }
    Ok(place)
}

fn run_iperf(args: &IperfArgs, abort: &AtomicBool) -> Result<()> {
    if args.duration.subsec_nanos() != 0 {
        bail!(Usage(format!(
            "--duration is {} s, and iperf3 takes whole seconds",
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
    let ways: &[Way] = match args.direction {
        Direction::Up => &[Way::Up],
        Direction::Down => &[Way::Down],
        Direction::Both => &[Way::Up, Way::Down],
    };
    let results = ways
        .iter()
        .map(|way| iperf::run(&options, *way, abort))
        .collect::<Result<Vec<IperfResult>, _>>()?;
    if args.json {
        return print(serde_json::to_string_pretty(&results)?);
    }
    let lines: Vec<String> = results.iter().map(iperf_line).collect();
    print(lines.join("\n"))
}

fn iperf_line(result: &IperfResult) -> String {
    let way = match result.way {
        Way::Up => "up",
        Way::Down => "down",
    };
    let count =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let rtt = result
        .mean_rtt_us
        .map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.0}"));
    format!(
        "{way:5}{:>12.3} Mbit/s over {:.2} s, {} sent again, mean round trip {rtt} us, CPU {:.0} % client, {:.0} % server",
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
            "none of {} requests to {} was answered in time",
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

/// A service in a place: its sockets stay there.
fn serve(place: &Place, address: SocketAddr) -> Result<EchoServer> {
    place.enter(|| EchoServer::bind(address))?.map_err(of_echo)
}

/// With the exit code that it has: an address that is not this machine's is the caller's fault.
fn of_echo(error: echo::EchoError) -> anyhow::Error {
    use std::io::ErrorKind;
    match &error {
        echo::EchoError::BadInput(_) => Usage(error.to_string()).into(),
        echo::EchoError::Bind { error: cause, .. } => match cause.kind() {
            ErrorKind::AddrNotAvailable => Usage(error.to_string()).into(),
            ErrorKind::PermissionDenied => Lacking(error.to_string()).into(),
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
        // Too few samples for it.
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
