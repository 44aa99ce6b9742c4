// SPDX-License-Identifier: Apache-2.0
//! Any lines as requests of the control socket, to a switch that is only planned: what is a request is one again after it
//! was written, and a change gives settings that make sense, and are written as a file that asks for the same, or is
//! refused with a reason.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use quietwire_host::CpuList;
use quietwire_switch::config::Settings;
use quietwire_switch::control::{REQUEST_MAX, Request};

static ONLINE: LazyLock<CpuList> = LazyLock::new(|| "0-3".parse().expect("a list of CPUs"));

/// Configuration before the first line, so that a request can change something.
const START: &str = include_str!("../../crates/switch/src/fuzz/start.toml");

static SETTINGS: LazyLock<Settings> =
    LazyLock::new(|| Settings::parse(Path::new("start"), START).expect("settings that make sense"));

fuzz_target!(|input: &[u8]| {
    let mut settings = SETTINGS.clone();
    let lines = input.split(|octet| *octet == b'\n');
    for line in lines.take(64).filter(|line| line.len() <= REQUEST_MAX) {
        let Ok(request) = serde_json::from_slice::<Request>(line) else {
            continue;
        };
        let text = serde_json::to_string(&request).expect("a request can be written");
        let again: Request = serde_json::from_str(&text).expect("what was written is a request");
        assert_eq!(request, again);
        let Request::Change(change) = request else {
            continue;
        };
        let Ok(next) = settings.clone().after(change) else {
            continue;
        };
        let Ok(plan) = next.clone().plan(&ONLINE) else {
            continue;
        };
        let file = plan.to_toml().expect("a plan can be written");
        let read =
            Settings::parse(Path::new("written"), &file).expect("what was written can be read");
        let again = read.plan(&ONLINE).expect("what was written makes sense");
        assert_eq!(again, plan, "{file}");
        settings = next;
    }
});
