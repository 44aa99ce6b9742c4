// SPDX-License-Identifier: Apache-2.0
//! Renders a script that creates the resctrl groups (kernel documentation: filesystems/resctrl.rst). The limits of the default
//! group come last: when it loses ways, other groups already have them.

use crate::partition::{Class, Plan};

pub(super) fn render(plan: &Plan) -> String {
    if plan.classes.is_empty() {
        return "# The machine does not support resctrl.\n".to_owned();
    }
    let mut text = "#!/bin/sh\nset -eu\ncd /sys/fs/resctrl\n".to_owned();
    for class in plan.classes.iter().filter(|class| !class.is_default) {
        text += &format!("mkdir -p {}\n", class.name);
        text += &schemata(class, &format!("{}/schemata", class.name));
        text += &format!("echo {} > {}/cpus_list\n", class.cpus, class.name);
    }
    for class in plan.classes.iter().filter(|class| class.is_default) {
        text += &schemata(class, "schemata");
    }
    text
}

/// Renders one line for each resource. With CDP, code and data have separate lines, because the kernel has no L3 then.
fn schemata(class: &Class, file: &str) -> String {
    let mut lines = String::new();
    let mut levels: Vec<u8> = class.masks.iter().map(|mask| mask.level).collect();
    levels.dedup();
    for level in levels {
        let masks = class.masks.iter().filter(|mask| mask.level == level);
        let masks: Vec<String> = masks
            .map(|mask| format!("{}={:x}", mask.domain, mask.mask))
            .collect();
        let masks = masks.join(";");
        lines += &format!(
            "if [ -d info/L{level}CODE ]; then\n    printf 'L{level}CODE:{masks}\\nL{level}DATA:{masks}\\n' > {file}\nelse\n    printf 'L{level}:{masks}\\n' > {file}\nfi\n"
        );
    }
    if !class.bandwidth.is_empty() {
        let limits: Vec<String> = class
            .bandwidth
            .iter()
            .map(|limit| format!("{}={}", limit.domain, limit.limit))
            .collect();
        lines += &format!("printf 'MB:{}\\n' > {file}\n", limits.join(";"));
    }
    lines
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::cpus;
    for class in &plan.classes {
        let file = if class.is_default {
            "schemata".to_owned()
        } else {
            format!("{}/schemata", class.name)
        };
        // Pairs of a domain and its value from a line `printf 'L3:0=f;1=f\n' > FILE`.
        let pairs = |resource: &str| -> Vec<(u32, String)> {
            let start = format!("printf '{resource}:");
            let line = text.lines().map(str::trim).find_map(|line| {
                let values = line
                    .strip_prefix(&start)?
                    .strip_suffix(&format!("\\n' > {file}"))?;
                Some(values.to_owned())
            });
            let line = line.unwrap_or_default();
            let pairs = line.split(';').filter_map(|part| part.split_once('='));
            pairs
                .map(|(domain, value)| (domain.parse().unwrap(), value.to_owned()))
                .collect()
        };
        let masks = ["L2", "L3"].map(&pairs).concat();
        let masks: Vec<(u32, u64)> = masks
            .into_iter()
            .map(|(domain, mask)| (domain, u64::from_str_radix(&mask, 16).unwrap()))
            .collect();
        let planned: Vec<(u32, u64)> = class
            .masks
            .iter()
            .map(|mask| (mask.domain, mask.mask))
            .collect();
        assert_eq!(masks, planned);
        let limits: Vec<(u32, u32)> = pairs("MB")
            .into_iter()
            .map(|(domain, limit)| (domain, limit.parse().unwrap()))
            .collect();
        let planned: Vec<(u32, u32)> = class
            .bandwidth
            .iter()
            .map(|limit| (limit.domain, limit.limit))
            .collect();
        assert_eq!(limits, planned);
        if !class.is_default {
            let end = format!(" > {}/cpus_list", class.name);
            let list = text
                .lines()
                .find_map(|line| line.strip_suffix(&end)?.strip_prefix("echo "));
            assert_eq!(cpus(list.unwrap()), class.cpus);
        }
    }
}
