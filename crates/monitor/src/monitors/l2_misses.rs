// SPDX-License-Identifier: Apache-2.0
//! The event of a processor that counts misses of its L2 cache. The kernel has no general event for it, so it depends on vendor and model.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;

use perf_event::events::Raw;
use quietwire_base::proc::{self, cpuinfo_field};

/// `L2_RQSTS.MISS` of Intel's processors: event 0x24, mask 0x3f (tools/perf/pmu-events/arch/x86/*/cache.json).
const INTEL: u64 = 0x3f24;
/// Models of family 6 with this event, from Haswell on: cores of servers and desktops (mapfile.csv, ibid.).
const INTEL_MODELS: &[&[u32]] = &[
    // Haswell, Broadwell.
    &[0x3c, 0x45, 0x46, 0x3f, 0x3d, 0x47, 0x56, 0x4f],
    // Skylake and its successors.
    &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55],
    // Ice Lake, Tiger Lake, Rocket Lake.
    &[0x7d, 0x7e, 0x6a, 0x6c, 0x8c, 0x8d, 0xa7],
    // Alder Lake, Raptor Lake, Meteor Lake: their performance cores.
    &[0x97, 0x9a, 0xb7, 0xba, 0xbf, 0xaa, 0xac],
    // Sapphire Rapids, Emerald Rapids, Granite Rapids.
    &[0x8f, 0xcf, 0xad, 0xae],
];
/// Misses of requests from the L1 caches on AMD Zen: event 0x64, mask 0x09, which the kernel counts there as `cache-misses`
/// (arch/x86/events/amd/core.c).
const AMD: u64 = 0x0964;
/// Families of AMD Zen, and of Hygon.
const AMD_FAMILIES: [u32; 3] = [0x17, 0x19, 0x1a];
const HYGON_FAMILY: u32 = 0x18;

/// Returns the event of a processor, from the text of `/proc/cpuinfo`.
///
/// # Errors
/// The processor, as a clause.
fn event_of(cpuinfo: &str) -> Result<u64, String> {
    let field = |key| cpuinfo_field(cpuinfo, key);
    let number = |key| field(key)?.parse::<u32>().ok();
    let vendor = field("vendor_id").unwrap_or("no vendor");
    let (family, model) = (number("cpu family"), number("model"));
    match (vendor, family, model) {
        ("GenuineIntel", Some(6), Some(model))
            if INTEL_MODELS.iter().any(|kin| kin.contains(&model)) =>
        {
            Ok(INTEL)
        }
        ("AuthenticAMD", Some(family), _) if AMD_FAMILIES.contains(&family) => Ok(AMD),
        ("HygonGenuine", Some(HYGON_FAMILY), _) => Ok(AMD),
        _ => {
            let shown = |number: Option<u32>| number.map_or("?".to_owned(), |it| it.to_string());
            Err(format!(
                "no event for misses of the L2 cache is known for this processor ({vendor}, family {}, model {})",
                shown(family),
                shown(model)
            ))
        }
    }
}

/// Returns the event of this machine's processor.
///
/// # Errors
/// [`ErrorKind::Unsupported`]: none is known for the processor.
pub(super) fn event() -> io::Result<Raw> {
    // Once: to make this file, the kernel asks every CPU for its frequency.
    static EVENT: OnceLock<Result<u64, String>> = OnceLock::new();
    let found = EVENT.get_or_init(|| {
        let text = proc::read(Path::new("/proc/cpuinfo"));
        event_of(&text.map_err(|error| format!("/proc/cpuinfo: {error}"))?)
    });
    match found {
        Ok(config) => Ok(Raw::new(*config)),
        Err(reason) => Err(io::Error::new(ErrorKind::Unsupported, reason.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpuinfo(vendor: &str, family: u32, model: u32) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: A processor\n\nprocessor\t: 1\n"
        )
    }

    #[test]
    fn the_event_is_that_of_vendor_and_model() {
        for (vendor, family, model, event) in [
            // Skylake and Sapphire Rapids.
            ("GenuineIntel", 6, 85, 0x3f24),
            ("GenuineIntel", 6, 143, 0x3f24),
            // Zen 1, Zen 4 and Zen 5.
            ("AuthenticAMD", 23, 1, 0x0964),
            ("AuthenticAMD", 25, 17, 0x0964),
            ("AuthenticAMD", 26, 2, 0x0964),
            ("HygonGenuine", 24, 0, 0x0964),
        ] {
            let found = event_of(&cpuinfo(vendor, family, model));
            assert_eq!(found, Ok(event), "{vendor} {family} {model}");
        }
        for (vendor, family, model) in [
            // Sandy Bridge, an Atom, and a processor before Zen.
            ("GenuineIntel", 6, 42),
            ("GenuineIntel", 6, 175),
            ("GenuineIntel", 15, 85),
            ("AuthenticAMD", 21, 2),
            ("HygonGenuine", 25, 0),
        ] {
            let reason = event_of(&cpuinfo(vendor, family, model)).unwrap_err();
            let shown = format!("({vendor}, family {family}, model {model})");
            assert!(reason.contains(&shown), "{reason}");
        }
        let other = event_of("processor\t: 0\nCPU implementer\t: 0x41\n").unwrap_err();
        assert!(other.contains("(no vendor, family ?, model ?)"), "{other}");
    }
}
