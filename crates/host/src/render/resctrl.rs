// SPDX-License-Identifier: Apache-2.0
//! resctrl's groups as a script (kernel documentation: filesystems/resctrl.rst). The default group's own limits come
//! last: while they are narrowed, the ways are somebody else's already.

use crate::partition::{Class, Plan};

pub(super) fn render(plan: &Plan) -> String {
    if plan.classes.is_empty() {
        return "# Nothing is shared out: the machine has no resctrl.\n".to_owned();
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

/// One resource a line. With code and data apart there is a line for each, as the kernel has no L3 then.
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
        let line = text
            .lines()
            .find(|line| line.contains("'L3:") && line.ends_with(&format!("> {file}")));
        if !class.masks.is_empty() {
            let (_, masks) = line.unwrap().split_once("L3:").unwrap();
            let (masks, _) = masks.split_once('\\').unwrap();
            for (part, planned) in masks.split(';').zip(&class.masks) {
                let (domain, mask) = part.split_once('=').unwrap();
                assert_eq!(
                    (domain.parse(), u64::from_str_radix(mask, 16)),
                    (Ok(planned.domain), Ok(planned.mask))
                );
            }
        }
        if !class.is_default {
            let end = format!(" > {}/cpus_list", class.name);
            let list = text
                .lines()
                .find_map(|line| line.strip_suffix(&end)?.strip_prefix("echo "));
            assert_eq!(cpus(list.unwrap()), class.cpus);
        }
    }
}
