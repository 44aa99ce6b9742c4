// SPDX-License-Identifier: Apache-2.0
//! Renders a file that `update-grub` reads after /etc/default/grub. It extends the existing command line (grub-mkconfig(8)).

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    format!(
        "# Read by update-grub. Takes effect at the next boot.\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {}\"\n",
        plan.command_line()
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    let start = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT ";
    let line = super::tests::value(text, start);
    let parameters = line.strip_suffix('"').unwrap();
    // update-grub runs the file as a shell script.
    assert!(!parameters.contains(['"', '$', '`', '\\']), "{parameters}");
    super::kernel_cmdline::check(parameters, plan);
}
