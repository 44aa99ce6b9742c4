// SPDX-License-Identifier: Apache-2.0
//! Any text as a file of filter rules, or as a ruleset of nftables or iptables. The parser accepts or refuses it. Every error names the
//! file. A file of imported rules has the same rules.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use quietwire_switch::config::rules::{Hook, Imported, RuleFile, RuleSetting};

fuzz_target!(|octets: &[u8]| {
    let Some((choice, rest)) = octets.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    if choice % 2 == 0 {
        if let Err(error) = RuleFile::parse(Path::new("fuzz.toml"), text) {
            assert!(error.to_string().contains("fuzz.toml"), "{error}");
        }
        return;
    }
    let Ok(imported) = Imported::parse(text, Hook::Forward) else {
        return;
    };
    let file = imported.to_toml().expect("imported rules can be written");
    let read = RuleFile::parse(Path::new("imported.toml"), &file);
    let read = read.expect("written rules can be read");
    let rules: Vec<RuleSetting> = read.rules.into_iter().map(|rule| rule.value).collect();
    assert_eq!(rules, imported.rules, "{file}");
});
