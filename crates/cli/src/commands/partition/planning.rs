// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition plan`, `partition derive` and `partition render`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use quietwire_host::cards;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{InfeasibleRequest, PartitionRequest, Plan, derive, plan, propose};
use quietwire_host::render::Target;

use crate::commands::host::{open, read_machine};
use crate::exit::Usage;
use crate::output::write_file;
use crate::partition_files::{read_plan, read_request};
use crate::text::{print, print_columns};

/// Machine and partition request of a plan.
#[derive(Debug, Args)]
struct InputArgs {
    /// Partition request (TOML). Default: the request that `partition derive` proposes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Root directory with /proc and /sys of a machine, or a recording.
    #[arg(long, value_name = "DIRECTORY|FILE.tar.zst", default_value = "/")]
    root: PathBuf,
}

/// Show the partition plan with its reasons. Changes nothing.
#[derive(Debug, Args)]
pub(super) struct PlanningArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
}

/// Propose a partition request for this hardware.
#[derive(Debug, Args)]
pub(super) struct DeriveArgs {
    /// Root directory with /proc and /sys of a machine, or a recording.
    #[arg(long, value_name = "DIRECTORY|FILE.tar.zst", default_value = "/")]
    root: PathBuf,
}

/// Print the plan in the format of another program.
#[derive(Debug, Args)]
pub(super) struct RenderArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Partition plan (JSON).
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    plan: Option<PathBuf>,
    /// Target: kernel-cmdline, grub, tuned, systemd, irqbalance, ovs, vpp, testpmd, quietwire, vrouter, libvirt, qemu,
    /// kubelet, tripleo, performance-profile, resctrl, pqos or nova.
    #[arg(long = "for", value_name = "TARGET")]
    target: Target,
    /// Write files to this directory instead of printing. A guest's file is named after the guest.
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

fn request(config: Option<&Path>, machine: &Inventory) -> Result<PartitionRequest> {
    config.map_or_else(|| Ok(derive(machine)), read_request)
}

fn plan_with_machine(input: &InputArgs) -> Result<(Plan, Inventory)> {
    let root = open(&input.root)?;
    let machine = read_machine(root.path(), &input.root)?;
    let request = request(input.config.as_deref(), &machine)?;
    let plan = plan(&machine, &request).map_err(|infeasible| refusal(&infeasible))?;
    Ok((plan, machine))
}

/// Describes the conflicts and the nearest feasible request.
fn refusal(infeasible: &InfeasibleRequest) -> Usage {
    let mut text = format!("the partition request is not feasible on this machine\n{infeasible}");
    match infeasible.nearest.as_ref().map(|(near, _)| near.to_toml()) {
        Some(Ok(near)) => text += &format!("\n\nNearest feasible request:\n\n{near}"),
        Some(Err(error)) => {
            text += &format!("\n\nThe nearest feasible request cannot be printed: {error}");
        }
        None => {}
    }
    Usage(text)
}

pub(super) fn run(args: &PlanningArgs) -> Result<()> {
    let (plan, machine) = plan_with_machine(&args.input)?;
    if args.json {
        return print(serde_json::to_string_pretty(&plan)?);
    }
    let text = describe_plan(&plan) + &describe_cards(&plan, &machine);
    print_columns(&text, WIDTH + 1)
}

pub(super) fn run_derive(args: &DeriveArgs) -> Result<()> {
    let root = open(&args.root)?;
    let proposal = propose(&read_machine(root.path(), &args.root)?);
    print(proposal.to_toml()?.trim_end())
}

pub(super) fn run_render(args: &RenderArgs) -> Result<()> {
    let plan = match &args.plan {
        Some(path) => read_plan(path)?,
        None => plan_with_machine(&args.input)?.0,
    };
    let files = args.target.render(&plan);
    if files.is_empty() {
        return Err(Usage(format!(
            "the plan has no guest, so there is nothing to render for {} (add a [[guest]] to the request)",
            args.target.name()
        ))
        .into());
    }
    for file in files {
        match &args.output {
            None => print(file.text.trim_end())?,
            Some(directory) => {
                let name = Path::new(&file.path).file_name().unwrap_or_default();
                let path = directory.join(name);
                write_file("--output", &path, file.text)?;
                print(path.display())?;
            }
        }
    }
    Ok(())
}

/// Width of the column of names.
const WIDTH: usize = 16;

/// Describes the network cards of the plan: where they are, and what is wrong with them. Empty without cards.
fn describe_cards(plan: &Plan, machine: &Inventory) -> String {
    let mut cards = cards::report(machine);
    let is_in_plan = |address: &str| plan.nics.iter().any(|nic| nic.pci_address == address);
    cards.retain(|card| is_in_plan(&card.pci_address));
    let mut lines = Vec::new();
    for card in &cards {
        let address = &card.pci_address;
        lines.push(format!("{address:<WIDTH$} {}", card.facts.join(", ")));
        for problem in &card.problems {
            lines.push(format!("{:<WIDTH$} {}", "", problem.what));
            lines.push(format!("{:<WIDTH$} -> {}", "", problem.remedy));
        }
    }
    match lines.is_empty() {
        true => String::new(),
        false => format!("\n\nnetwork cards\n{}", lines.join("\n")),
    }
}

/// Formats the plan as text: the groups with their resources, then the reasons.
fn describe_plan(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for group in &plan.groups {
        let name = if group.role.name() == group.name {
            group.name.clone()
        } else {
            format!("{} {}", group.role.name(), group.name)
        };
        let nodes: Vec<String> = group.nodes.iter().map(u32::to_string).collect();
        let place = match nodes.is_empty() {
            true => ", node unknown".to_owned(),
            false => format!(" on node {}", nodes.join(", ")),
        };
        let memory = if group.memory_mib > 0 {
            format!(", {} MiB of huge pages", group.memory_mib)
        } else {
            String::new()
        };
        let class = group
            .class
            .as_ref()
            .map_or(String::new(), |class| format!(", class {class}"));
        lines.push(format!(
            "{name:<WIDTH$} CPUs {}{place}{memory}{class}",
            group.cpus,
        ));
    }
    lines.push(String::new());
    lines.push("reasons".to_owned());
    lines.extend(
        plan.reasons
            .iter()
            .map(|reason| format!("{:<WIDTH$} {}", reason.subject, reason.text)),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use quietwire_host::machines::two_packages_with_clusters;

    use super::*;

    #[test]
    fn network_cards_of_a_plan_are_described_with_their_problems() {
        let root = tempfile::tempdir().unwrap();
        two_packages_with_clusters().write(root.path()).unwrap();
        let mut machine = Inventory::read(root.path());
        let mut plan = plan(&machine, &derive(&machine)).unwrap();
        let address = plan.nics.first().unwrap().pci_address.clone();
        let place = |nics: &[quietwire_host::inventory::Nic]| {
            nics.iter().position(|nic| nic.pci_address == address)
        };
        let index = place(&machine.nics).unwrap();
        machine.nics[index].driver = None;
        let text = describe_cards(&plan, &machine);
        assert!(text.starts_with("\n\nnetwork cards\n"), "{text}");
        assert!(text.contains("has no driver"), "{text}");
        assert!(
            text.contains(&format!(
                "-> modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {address}"
            )),
            "{text}"
        );
        plan.nics.clear();
        assert_eq!(describe_cards(&plan, &machine), "");
    }
}
