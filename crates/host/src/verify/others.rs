// SPDX-License-Identifier: Apache-2.0
//! CPU configuration of other programs: Open vSwitch, VPP, Nova, systemd, tuned, libvirt and kubelet. Two programs that
//! both place threads silently undo each other's changes.

mod claim;
mod read;

use super::check::Check;
use super::machine::Machine;
use crate::partition::Role;
use claim::{ExpectedCpus, ProgramCpus};

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let claims = read::claims(machine);
    let irregular = read::irregular(machine).into_iter();
    claims
        .iter()
        .map(|claim| check(machine, claim))
        .chain(irregular.map(|(program, file)| not_regular(program, file)))
        .collect()
}

/// Returns the check of a file that is not read.
fn not_regular(program: &'static str, file: &str) -> Check {
    let expected = "a regular file";
    let actual = "a FIFO, a device or a directory";
    Check::unknown(program, format!("/{file}"), expected, actual)
}

fn check(machine: &Machine<'_>, claim: &ProgramCpus) -> Check {
    let guests = machine.plan.cpus(Role::Guest);
    let expected = match claim.wanted {
        ExpectedCpus::Forwarding => format!("only forwarding CPUs {}", machine.forwarding),
        ExpectedCpus::Guests => format!("only guest CPUs {guests}"),
        ExpectedCpus::NotIsolated => format!("no isolated CPUs ({})", machine.isolated),
        ExpectedCpus::AllIsolated => format!("all isolated CPUs {}", machine.isolated),
    };
    let expected = format!("{}: {expected}", claim.what);
    let Some(cpus) = &claim.cpus else {
        return Check::unknown(claim.name, &claim.file, expected, "not a valid CPU list");
    };
    let is_fine = match claim.wanted {
        ExpectedCpus::Forwarding => cpus.difference(&machine.forwarding).is_empty(),
        ExpectedCpus::Guests => cpus.difference(&guests).is_empty(),
        ExpectedCpus::NotIsolated => cpus.intersection(&machine.isolated).is_empty(),
        ExpectedCpus::AllIsolated => machine.isolated.difference(cpus).is_empty(),
    };
    let actual = format!("CPUs {cpus}");
    Check::new(
        claim.name,
        &claim.file,
        expected,
        actual,
        is_fine,
        claim.remedy,
    )
}
