// SPDX-License-Identifier: Apache-2.0
//! CPUs of the kernel's unbound work queues (kernel documentation: core-api/workqueue.rst).

use super::check::{APPLY, Check};
use super::machine::Machine;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let files = [
        ("work-queues", "sys/devices/virtual/workqueue/cpumask"),
        ("write-back", "sys/bus/workqueue/devices/writeback/cpumask"),
    ];
    files
        .map(|(name, file)| machine.keeps_off(name, file, machine.mask(file), APPLY))
        .to_vec()
}
