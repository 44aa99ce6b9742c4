// SPDX-License-Identifier: Apache-2.0
//! Common parts of the kernel's switches: their network namespace, the CPUs that do the work, counters of interfaces.

use quietwire_base::proc::kernel_release;
use quietwire_base::{Deadline, find_program};
use quietwire_tester::account::ElementCounts;

use super::installed::not_installed;
use crate::counts::{of_links, run_until};
use crate::element::{ElementContext, Plan, run};
use crate::error::LabError;
use crate::unavailable::Unavailable;

/// Returns the release of the kernel.
pub(super) fn probe() -> Result<String, Unavailable> {
    if find_program("ip").is_none() {
        return Err(not_installed("ip", "run `apt-get install iproute2`"));
    }
    Ok(format!("Linux {}", kernel_release()))
}

/// Returns the namespace of the element. An element with interfaces of the kernel always has one.
pub(super) fn namespace(plan: &Plan) -> Result<&str, LabError> {
    plan.namespace
        .as_deref()
        .ok_or_else(|| LabError::Topology(format!("{} has no network namespace", plan.name)))
}

/// Runs a command in the namespace.
pub(super) fn inside(
    plan: &Plan,
    context: &mut ElementContext<'_>,
    words: &[&str],
) -> Result<(), LabError> {
    let first = ["ip", "netns", "exec", namespace(plan)?];
    context.run(&[&first[..], words].concat()).map(|_| ())
}

/// Makes the kernel process an interface's frames on the element's CPUs and not on the sender's (receive packet steering,
/// Documentation/networking/scaling.rst). `ip netns exec` shows the interfaces of the namespace below /sys.
pub(super) fn steer(plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
    let mask = plan.cpus.to_mask();
    let mask = mask.trim_start_matches("0x");
    for port in 0..plan.ports.len() {
        let setting = format!("echo {mask} >/sys/class/net/p{port}/queues/rx-0/rps_cpus");
        inside(plan, context, &["sh", "-c", &setting])?;
    }
    Ok(())
}

/// Frames of each interface, from the switch's point of view.
pub(super) fn frames(plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
    let namespace = namespace(plan).map_err(|error| error.to_string())?;
    let words = ["ip", "-n", namespace, "-s", "-j", "link", "show"];
    of_links(&run_until(deadline, &words)?)
}

/// Returns the output of `ip` about the namespace.
pub(super) fn query_kernel(plan: &Plan, subjects: &[&[&str]]) -> Result<Vec<String>, String> {
    let namespace = namespace(plan).map_err(|error| error.to_string())?;
    let mut lines = Vec::new();
    for subject in subjects {
        let first = ["ip", "-n", namespace];
        let reported = run(&[&first[..], subject].concat())?;
        lines.extend(reported.lines().map(str::to_owned));
    }
    Ok(lines)
}
