// SPDX-License-Identifier: Apache-2.0
//! Interrupts and their CPU affinity (kernel documentation: core-api/irq/irq-affinity.rst).

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::proc::PerCpu;
use crate::tree::Tree;

/// One interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Number of the interrupt.
    pub irq: u32,
    /// Handlers (`eth0-rx-0`) in `/proc/interrupts`.
    pub name: Option<String>,
    /// Allowed CPUs (`smp_affinity_list`).
    pub allowed: Option<CpuList>,
    /// Effective CPUs (`effective_affinity_list`).
    pub effective: Option<CpuList>,
}

/// Returns all numbered interrupts.
pub(super) fn irqs(tree: &Tree) -> Vec<Irq> {
    let text = tree.text("proc/interrupts").unwrap_or_default();
    // Only the text after the counters is needed, so no CPU's column is kept.
    let interrupts = PerCpu::parse(&text, |_| false).unwrap_or_default();
    let numbers = tree.numbered("proc/irq", "");
    let irq = |irq: u32| {
        let at = |file: &str| format!("proc/irq/{irq}/{file}");
        Irq {
            irq,
            name: name(&interrupts, irq),
            allowed: tree.value(&at("smp_affinity_list")),
            effective: tree.value(&at("effective_affinity_list")),
        }
    };
    numbers.into_iter().map(irq).collect()
}

/// Returns the handlers of an interrupt: the text after the chip and the hardware's number.
fn name(interrupts: &PerCpu, irq: u32) -> Option<String> {
    let line = interrupts.lines.get(&irq.to_string())?;
    let words = line.what.split_whitespace();
    // The chip's name, then `5-edge`. The chip's name may have two words.
    let mut words = words.skip_while(|word| !is_line_kind(word));
    words.next()?;
    let name: Vec<&str> = words.collect();
    (!name.is_empty()).then(|| name.join(" "))
}

/// Returns whether a word is the line type: `5-edge`, `524288-fasteoi`, or Arm's `Level` and `Edge`.
fn is_line_kind(word: &str) -> bool {
    let numbered = word
        .split_once('-')
        .is_some_and(|(number, _)| number.parse::<u64>().is_ok());
    numbered || word == "Level" || word == "Edge"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_reported_on_both_architectures() {
        let text = "  CPU0 CPU1\n 24:  1 0 IO-APIC   5-edge      ACPI:Ged\n 38: 0 24026 PCI-MSIX-0000:00:03.0   1-edge  virtio2-input.0\n 13: 5 6 GICv3 30 Level arch_timer\n 14: 5 6 ITS-MSI 134742016 Edge nvme0q0, nvme0q1\nLOC: 1 2 Local timer interrupts\n";
        let text = &PerCpu::parse(text, |_| false).unwrap();
        assert_eq!(name(text, 24).as_deref(), Some("ACPI:Ged"));
        assert_eq!(name(text, 38).as_deref(), Some("virtio2-input.0"));
        assert_eq!(name(text, 13).as_deref(), Some("arch_timer"));
        assert_eq!(name(text, 14).as_deref(), Some("nvme0q0, nvme0q1"));
        assert_eq!(name(text, 15), None);
    }
}
