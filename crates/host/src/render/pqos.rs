// SPDX-License-Identifier: Apache-2.0
//! Renders commands for pqos of intel-cmt-cat (pqos(8)). pqos numbers the classes; the default class is 0.

use crate::partition::Plan;

pub(super) fn render(plan: &Plan) -> String {
    if plan.classes.is_empty() {
        return "# The machine does not support allocation of cache or memory bandwidth.\n"
            .to_owned();
    }
    let mut text = "#!/bin/sh\nset -eu\n".to_owned();
    for (number, class) in plan.classes.iter().enumerate() {
        let masks = class.masks.iter().map(|mask| {
            let cache = if mask.level == 2 { "l2" } else { "llc" };
            format!("{cache}@{}:{number}=0x{:x}", mask.domain, mask.mask)
        });
        let limits = class
            .bandwidth
            .iter()
            .map(|limit| format!("mba@{}:{number}={}", limit.domain, limit.limit));
        let all: Vec<String> = masks.chain(limits).collect();
        text += &format!("# {}\npqos -e '{}'\n", class.name, all.join(";"));
        text += &format!("pqos -a 'llc:{number}={}'\n", class.cpus);
    }
    text
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus};
    for (number, class) in plan.classes.iter().enumerate() {
        assert_eq!(
            cpus(&between(text, &format!("'llc:{number}="), "'")),
            class.cpus
        );
        for mask in &class.masks {
            let cache = if mask.level == 2 { "l2" } else { "llc" };
            let written = between(text, &format!("{cache}@{}:{number}=0x", mask.domain), ";'");
            assert_eq!(u64::from_str_radix(&written, 16), Ok(mask.mask));
        }
        for limit in &class.bandwidth {
            let written = between(text, &format!("mba@{}:{number}=", limit.domain), ";'");
            assert_eq!(written.parse(), Ok(limit.limit));
        }
    }
}
