// SPDX-License-Identifier: Apache-2.0
//! Common parts of the kernel's switches: their network namespace, the CPUs that do the work, counters of interfaces.

use quietwire_base::proc::kernel_release;
use quietwire_base::{Deadline, find_program};
use quietwire_tester::account::ElementCounts;

use super::installed::not_installed;
use crate::counts::{of_links, run_until};
use crate::element::{Attachment, ElementContext, Plan, run};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::statistics::Statistics;
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

/// Makes the kernel process the frames that an element's interfaces receive on the element's CPUs and not on the sender's (receive packet
/// steering, Documentation/networking/scaling.rst). This work is the element's with every program, and the sender may be the tester. `ip
/// netns exec` shows the interfaces of the namespace below /sys.
pub(crate) fn steer(plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
    let mask = plan.cpus.to_mask();
    let mask = mask.trim_start_matches("0x");
    for port in &plan.ports {
        let Attachment::Interface { name } = &port.attachment else {
            continue;
        };
        let setting = format!("echo {mask} >/sys/class/net/{name}/queues/rx-0/rps_cpus");
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

/// Statistics of all interfaces and of their drivers.
pub(super) fn own_view(plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
    let namespace = namespace(plan).map_err(|error| error.to_string())?;
    let words = ["ip", "-n", namespace, "-s", "-s", "-j", "link", "show"];
    let mut statistics = Statistics::default();
    let printed = run_until(deadline, &words);
    statistics.read("ip -s link", printed, Statistics::of_links);
    driver_statistics(plan, deadline, &mut statistics);
    OwnView::of_statistics(statistics)
}

/// Adds the statistics of the drivers of an element's kernel interfaces, as `ethtool -S` prints them. An element without such interfaces
/// has none.
pub(super) fn driver_statistics(plan: &Plan, deadline: Deadline, statistics: &mut Statistics) {
    let ports = plan.ports.iter();
    let names: Vec<&str> = ports
        .filter_map(|port| match &port.attachment {
            Attachment::Interface { name } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let (Some(namespace), false) = (&plan.namespace, names.is_empty()) else {
        return;
    };
    if find_program("ethtool").is_none() {
        let reason = not_installed("ethtool", "run `apt-get install ethtool`");
        return statistics.lacks("ethtool -S", &reason.0);
    }
    for name in names {
        let words = ["ip", "netns", "exec", namespace, "ethtool", "-S", name];
        let printed = run_until(deadline, &words);
        let source = format!("ethtool -S {name}");
        statistics.read(&source, printed, |statistics, printed| {
            statistics.of_ethtool(name, printed)
        });
    }
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
