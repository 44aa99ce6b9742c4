// SPDX-License-Identifier: Apache-2.0
//! A file that `update-grub` reads after /etc/default/grub: it adds to what is there (grub-mkconfig(8)).

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    format!(
        "# Read by update-grub. Takes effect at the next boot.\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {}\"\n",
        plan.command_line()
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    // It is a shell script to update-grub.
    let script = format!(
        "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n{text}printf %s \"$GRUB_CMDLINE_LINUX_DEFAULT\""
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    super::kernel_cmdline::check(line.strip_prefix("quiet ").unwrap(), plan);
}
