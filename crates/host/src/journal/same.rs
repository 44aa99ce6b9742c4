// SPDX-License-Identifier: Apache-2.0
//! Comparison of a kernel file's text with the written text. The kernel does not show every value as it was written.

use std::collections::BTreeMap;
use std::path::Path;

use crate::CpuList;

/// Format of a file's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    /// Hexadecimal mask in words of 32 bits, with any number of leading zeros.
    CpuMask,
    CpuList,
    /// Lines `RESOURCE:domain=value;…` of resctrl.
    Schemata,
}

fn form_of(path: &Path) -> Form {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.unwrap_or_default() {
        "default_smp_affinity" | "smp_affinity" | "cpumask" | "rps_cpus" | "xps_cpus" => {
            Form::CpuMask
        }
        "smp_affinity_list" | "cpus_list" | "cpuset.cpus" | "cpuset.cpus.exclusive" => {
            Form::CpuList
        }
        "schemata" => Form::Schemata,
        _ => Form::Text,
    }
}

/// Returns whether the text `now` means the same as the written text `wanted`. For schemata, only the domains of `wanted`
/// are compared.
pub(crate) fn same(path: &Path, now: &str, wanted: &str) -> bool {
    let (now, wanted) = (now.trim(), wanted.trim());
    if now == wanted {
        return true;
    }
    let lists = |one: &str, other: &str| match (one.parse::<CpuList>(), other.parse()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    match form_of(path) {
        Form::Text => false,
        Form::CpuMask => lists(&as_mask(now), &as_mask(wanted)),
        Form::CpuList => lists(now, wanted),
        Form::Schemata => {
            let now = domains(now);
            let wanted = domains(wanted);
            !wanted.is_empty()
                && wanted
                    .iter()
                    .all(|(key, value)| now.get(key) == Some(value))
        }
    }
}

fn as_mask(text: &str) -> String {
    format!("0x{}", text.trim_start_matches("0x"))
}

/// Returns the values of schemata by resource and domain, without leading zeros. Masks are hexadecimal and limits decimal;
/// comparing both as text is correct.
fn domains(schemata: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for line in schemata.lines() {
        let Some((resource, values)) = line.split_once(':') else {
            continue;
        };
        for value in values.split(';') {
            if let Some((domain, value)) = value.split_once('=') {
                let value = value.trim().trim_start_matches('0').to_ascii_lowercase();
                let key = (resource.trim().to_owned(), domain.trim().to_owned());
                found.insert(key, value);
            }
        }
    }
    found
}

/// Returns whether a pool of huge pages stopped between two sizes: the kernel adds and removes pages one by one, and stops
/// early if the writer is killed or memory is short.
pub(crate) fn is_on_the_way(path: &Path, now: &str, former: &str, new: &str) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let is_pool = path.ends_with("nr_hugepages");
    match (is_pool, number(now), number(former), number(new)) {
        (true, Some(now), Some(former), Some(new)) => {
            (former.min(new)..=former.max(new)).contains(&now)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_when_the_kernel_means_the_same() {
        for (file, now, wanted, is_same) in [
            ("cpumask", "0000,00000003\n", "3", true),
            ("cpumask", "00000003", "0x5", false),
            ("rps_cpus", "0", "00000000,00000000", true),
            ("smp_affinity_list", "0-1", "0,1", true),
            ("smp_affinity_list", "0-1", "0", false),
            ("smp_affinity_list", "", "0", false),
            (
                "schemata",
                "    L3:0=0ff;1=fff\n    MB:0=100",
                "L3:0=ff",
                true,
            ),
            ("schemata", "L3:0=ff;1=fff", "L3:0=f", false),
            ("schemata", "L3:0=ff", "L3:7=ff", false),
            ("schemata", "L3:0=ff", "", false),
            ("scaling_governor", "performance\n", "performance", true),
            ("nr_hugepages", "010", "10", false),
        ] {
            assert_eq!(
                same(Path::new(file), now, wanted),
                is_same,
                "{file} {now} {wanted}"
            );
        }
    }

    #[test]
    fn a_partly_filled_pool_of_huge_pages_is_recognised() {
        let pool = Path::new("/a/nr_hugepages");
        assert!(is_on_the_way(pool, "37\n", "0\n", "100"));
        assert!(is_on_the_way(pool, "37", "100", "0"));
        assert!(!is_on_the_way(pool, "101", "0", "100"));
        assert!(!is_on_the_way(Path::new("/a/other"), "37", "0", "100"));
        assert!(!is_on_the_way(pool, "x", "0", "100"));
    }
}
