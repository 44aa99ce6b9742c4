// SPDX-License-Identifier: Apache-2.0
//! Measurements of applications: iperf3 and an echo between the two ends of a device.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use quietwire_host::CpuList;
use quietwire_host::threads::set_affinity;
use quietwire_lab::LabError;
use quietwire_lab::iperf::{self, IperfDirection, IperfOptions, IperfResult};
use quietwire_lab::up::Ends;
use quietwire_tester::echo::{self, EchoError, EchoOptions, EchoServer, EchoTransport};

use super::LabBenchError;
use crate::bench::{ApplicationResult, TcpResult};
use crate::methods::ApplicationPlan;

/// TCP port of iperf3 and UDP port of the echo service; the device's namespaces have no other services.
const IPERF_PORT: u16 = 5201;
const ECHO_PORT: u16 = 7007;
/// The calling thread (sched_setaffinity(2)).
const CALLER: i32 = 0;
/// Interval between two requests, and timeout of a reply.
const ECHO_INTERVAL: Duration = Duration::from_millis(1);
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs both, on these CPUs, until the end or until `abort` is set.
pub(super) fn measure(
    plan: &ApplicationPlan,
    ends: &Ends,
    cpus: &CpuList,
    abort: &AtomicBool,
) -> Result<ApplicationResult, LabBenchError> {
    // A new thread: all processes that it starts inherit its CPUs.
    let on_cpus = || {
        set_affinity(CALLER, cpus).map_err(failed)?;
        Ok(ApplicationResult {
            up: tcp(plan, ends, IperfDirection::Up, abort)?,
            down: tcp(plan, ends, IperfDirection::Down, abort)?,
            echo: round_trips(plan, ends, abort)?,
        })
    };
    let outcome = scope(|scope| scope.spawn(on_cpus).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(error: impl std::fmt::Display) -> LabBenchError {
    LabBenchError::Application(error.to_string())
}

fn tcp(
    plan: &ApplicationPlan,
    ends: &Ends,
    direction: IperfDirection,
    abort: &AtomicBool,
) -> Result<TcpResult, LabError> {
    let [client, server] = ends.places.clone();
    let options = IperfOptions {
        server,
        client,
        address: IpAddr::V4(ends.addresses[1]),
        port: IPERF_PORT,
        duration: Duration::from_secs(u64::from(plan.tcp_s)),
        streams: plan.streams,
    };
    let IperfResult {
        received_bps,
        retransmits,
        mean_rtt_us,
        ..
    } = iperf::run(&options, direction, abort)?;
    Ok(TcpResult {
        received_bps,
        retransmits,
        mean_rtt_us,
    })
}

fn round_trips(
    plan: &ApplicationPlan,
    ends: &Ends,
    abort: &AtomicBool,
) -> Result<quietwire_tester::LatencySummary, LabBenchError> {
    let [client, place] = &ends.places;
    let address = SocketAddr::new(IpAddr::V4(ends.addresses[1]), ECHO_PORT);
    let options = EchoOptions {
        server: address,
        transport: EchoTransport::Udp,
        payload_octets: plan.payload,
        duration: Duration::from_secs(u64::from(plan.echo_s)),
        interval: ECHO_INTERVAL,
        timeout: ECHO_TIMEOUT,
    };
    let server = place.enter(|| EchoServer::bind(address))?.map_err(failed)?;
    let done = AtomicBool::new(false);
    scope(|scope| {
        let serving = scope.spawn(|| server.serve(&done));
        let result = client.enter(|| echo::run(&options, abort));
        done.store(true, Ordering::Relaxed);
        let served = serving.join();
        served
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(failed)?;
        match result? {
            Err(EchoError::Aborted) => Err(LabError::Aborted.into()),
            result => Ok(result.map_err(failed)?.round_trip),
        }
    })
}
