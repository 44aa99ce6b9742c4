// SPDX-License-Identifier: Apache-2.0
//! Defaults of keys, compared with the guide.

use super::parse;

/// Sections with their required keys only.
const SHORTEST: &str = concat!(
    r#"
name = "shortest"
title = "Shortest"
"#,
    include_str!("../../tests/device.toml"),
    r#"
mode = "bridge"
[trials]
duration-s = 1
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 0.5
goal = [{ name = "NDR", loss-ratio = 0.0 }]
[soak]
duration-s = 60
[back-to-back]
[system-recovery]
[reset]
[address-caching]
max-addresses = 1000
[address-learning-rate]
addresses = 500
max-rate-pps = 50000
[connections-per-second]
[concurrent-connections]
[transactions-per-second]
[connection-throughput]
[transaction-latency]
[[case]]
name = "only"
neighbours = "none"
isolation = "none"
"#
);

/// Keys with a default, by section. Each section has a heading of its name.
const KEYS: [(&str, &[&str]); 11] = [
    ("soak", &["loss-ratio", "trial-growth-s"]),
    (
        "back-to-back",
        &["longest-burst-s", "resolution-frames", "repeats"],
    ),
    ("system-recovery", &["overload-s", "reduced-s", "repeats"]),
    ("reset", &["limit-s", "repeats"]),
    (
        "address-caching",
        &[
            "resolution-addresses",
            "learning-rate-pps",
            "probe-rate-pps",
        ],
    ),
    (
        "address-learning-rate",
        &["resolution-pps", "probe-rate-pps"],
    ),
    (
        "connections-per-second",
        &[
            "max-per-s",
            "resolution-percent",
            "failure-ratio",
            "best-of",
            "pause-s",
        ],
    ),
    (
        "concurrent-connections",
        &["max-connections", "opening-per-s"],
    ),
    ("transactions-per-second", &["connections"]),
    (
        "connection-throughput",
        &["connections", "transactions", "repeats"],
    ),
    ("transaction-latency", &["load-percent", "repeats"]),
];

/// Returns the default that the guide has for a key: in the last cell of its row, or in parentheses.
fn in_guide(section: &str, key: &str) -> f64 {
    let page = include_str!("../../../../../docs/methods.md");
    let (_, after) = page.split_once(&format!("\n### {section}\n")).unwrap();
    let text = after.split("\n### ").next().unwrap();
    let (row, inline) = (format!("| `{key}` "), format!("`{key}` (default: "));
    let mut found = text.lines().filter_map(|line| {
        if line.starts_with(&row) {
            line.trim_end_matches(" |").rsplit("| ").next()
        } else {
            line.split_once(&inline)?.1.split(')').next()
        }
    });
    let value = found.next().unwrap().replace(',', "");
    let parsed = value.parse();
    parsed.unwrap_or_else(|_| panic!("[{section}] {key}: '{value}'"))
}

#[test]
fn defaults_are_those_of_the_guide() {
    let file = parse(SHORTEST).unwrap();
    let written = toml::to_string(&file).unwrap();
    let written: toml::Table = toml::from_str(&written).unwrap();
    for (section, keys) in KEYS {
        for key in keys {
            let value = written[section][*key].to_string();
            let value: f64 = value.parse().unwrap();
            let guide = in_guide(section, key);
            assert!(
                (value - guide).abs() < 1e-12,
                "[{section}] {key}: {value} and {guide}"
            );
        }
    }
}
