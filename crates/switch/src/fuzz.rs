// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as a file of the switch or as requests to it, and must end without a panic.

use std::path::Path;
use std::sync::LazyLock;

use quietwire_base::fuzz::{check, planted};
use quietwire_host::CpuList;
use quietwire_tables::connections::{SAVED_OCTETS, SavedConnection};
use quietwire_tables::nat::{
    FilteringBehaviour, HoldDown, MappingBehaviour, MappingChange, Nat, NatSettings, NatTimeouts,
    PortPool, ReplicateIpv6, SavedMappingIpv6,
};
use quietwire_tables::nat64::{Nat64, Nat64Settings, Prefix64};

use crate::config::rules::{Hook, Imported, RuleFile, RuleSetting};
use crate::config::{Group, Plan, Settings};
use crate::connection_file::tests::{read_all, written};
use crate::control::{REQUEST_MAX, Request};
use crate::observe::WatchRequest;
use crate::replication::{Message, wire_tests};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
static ONLINE: LazyLock<CpuList> = LazyLock::new(|| "0-3".parse().unwrap());

/// Writes a plan as a file. The file leads to the same plan.
fn write_and_read(plan: &Plan) {
    let file = plan.to_toml().unwrap();
    let read = Settings::parse(Path::new("written"), &file);
    let again = read.and_then(|settings| settings.plan(&ONLINE));
    assert_eq!(again.as_ref().ok(), Some(plan), "{again:?}\n{file}");
}

/// Parses any text as a configuration (TOML). Every error names the file.
fn fuzz_config(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let settings = Settings::parse(Path::new("fuzz.toml"), text);
    let plan = match settings.and_then(|settings| settings.plan(&ONLINE)) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    write_and_read(&plan);
    planted("switch-config", || {
        let is_large = |group: &Group| match group {
            Group::Bridge(bridge) => bridge.ports.len() > 1 && bridge.ageing_s > 50_000,
            Group::CrossConnect(_) => false,
        };
        plan.groups.iter().any(is_large)
    });
    true
}

#[test]
fn config() {
    check(CRATE, "switch-config", fuzz_config);
}

/// Parses any text as a file of filter rules (TOML). Every error names the file.
fn fuzz_rules(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let file = match RuleFile::parse(Path::new("fuzz.toml"), text) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().contains("fuzz.toml"), "{error}");
            return false;
        }
    };
    planted("switch-rules", || {
        let is_deep = |rule: &RuleSetting| {
            rule.vlan.is_some_and(|vlan| vlan.get() > 2000) && rule.packet.source_port.is_some()
        };
        file.rules.iter().any(|rule| is_deep(&rule.value))
    });
    // Rules of ports that do not exist are refused, so only some lead to a plan.
    let ports =
        "[[port]]\nname = \"a\"\nuri = \"null:\"\n[[port]]\nname = \"b\"\nuri = \"null:\"\n";
    let ports = Settings::parse(Path::new("ports"), ports).unwrap();
    match file.settings().over(ports).plan(&ONLINE) {
        Ok(plan) => {
            write_and_read(&plan);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn rules() {
    check(CRATE, "switch-rules", fuzz_rules);
}

/// Parses any text as a ruleset of nftables or iptables. What is imported is a valid file with the same rules.
fn fuzz_import(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let Ok(imported) = Imported::parse(text, Hook::Forward) else {
        return false;
    };
    planted("switch-import", || {
        let is_deep = |rule: &RuleSetting| {
            rule.packet.icmp_code.is_some_and(|code| code > 4) && rule.port.is_some()
        };
        imported.rules.iter().any(is_deep)
    });
    let file = imported.to_toml().unwrap();
    let read = RuleFile::parse(Path::new("imported.toml"), &file).unwrap();
    let rules: Vec<RuleSetting> = read.rules.into_iter().map(|rule| rule.value).collect();
    assert_eq!(rules, imported.rules, "{file}");
    !imported.rules.is_empty()
}

#[test]
fn import() {
    check(CRATE, "switch-import", fuzz_import);
}

/// Configuration before the first request.
const START: &str = include_str!("fuzz/start.toml");

/// Parses any lines as requests of the control socket. A request is the same after it was written; a change is refused, or leads to a plan
/// that is the same after it was written.
fn fuzz_control(octets: &[u8]) -> bool {
    static RUNNING: LazyLock<(Settings, Plan)> = LazyLock::new(|| {
        let settings = Settings::parse(Path::new("start"), START).unwrap();
        let plan = settings.clone().plan(&ONLINE).unwrap();
        (settings, plan)
    });
    let (mut settings, mut running) = RUNNING.clone();
    let mut is_accepted = false;
    let lines = octets.split(|octet| *octet == b'\n');
    for line in lines.take(16).filter(|line| line.len() <= REQUEST_MAX) {
        let Ok(request) = serde_json::from_slice::<Request>(line) else {
            continue;
        };
        let text = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        is_accepted = true;
        let change = match request {
            Request::Change(change) => *change,
            Request::Watch(WatchRequest::StartCapture { filter, .. }) => {
                planted("switch-control", || {
                    filter.l4_port == Some(65535) && filter.mac.is_some()
                });
                continue;
            }
            _ => continue,
        };
        let Ok(next) = settings.clone().after(change) else {
            continue;
        };
        // A plan that uses parts of the former one is that of the settings alone.
        let former = Some((&settings, &running));
        let planned = next.clone().plan_after(&ONLINE, former).ok();
        assert_eq!(planned, next.clone().plan(&ONLINE).ok());
        let Some(plan) = planned else {
            continue;
        };
        write_and_read(&plan);
        (settings, running) = (next, plan);
    }
    is_accepted
}

#[test]
fn control() {
    check(CRATE, "switch-control", fuzz_control);
}

/// Reads any octets as a file of saved connections, and as records of a file with right checksums, which no mutant has by itself. A file of
/// valid records is read as it was written, and any other is refused.
fn fuzz_connections(octets: &[u8]) -> bool {
    let _ = read_all(octets);
    let (records, _) = octets.as_chunks::<SAVED_OCTETS>();
    let records: Vec<SavedConnection> = records
        .iter()
        .map(|record| SavedConnection::from_octets(*record))
        .collect();
    let read = read_all(&written(&records, 7));
    if !records.iter().all(SavedConnection::is_valid) {
        assert!(read.is_err());
        return false;
    }
    let (_, read) = read.unwrap();
    assert_eq!(read, records);
    planted("switch-connections", || {
        // IPv6, both sides have sent packets, with a mark.
        let is_deep = |octets: &[u8; SAVED_OCTETS]| octets[40] == 3 && octets[44] > 0;
        records.iter().any(|one| is_deep(one.octets()))
    });
    !records.is_empty()
}

#[test]
fn connections() {
    check(CRATE, "switch-connections", fuzz_connections);
}

/// Applies mappings of IPv6 hosts to NAT64, as a standby does. A mapping that it accepts is there afterwards, as the record has it.
fn apply_to_nat64(changes: &[MappingChange<SavedMappingIpv6>]) {
    const ENTRIES_MAX: u32 = 16;
    let settings = NatSettings {
        pool: PortPool {
            addresses: vec!["198.51.100.1".parse().unwrap()],
            first_port: 1024,
            last_port: 2047,
            block_size: 64,
            blocks_per_host: 2,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        },
        forwards: Vec::new(),
        pairs: Vec::new(),
        mappings_max: ENTRIES_MAX,
        hosts_max: ENTRIES_MAX,
        mapping: MappingBehaviour::default(),
        filtering: FilteringBehaviour::default(),
        timeouts: NatTimeouts::default(),
    };
    let nat64 = Nat64Settings {
        prefix: Prefix64::new("64:ff9b::/96".parse().unwrap()).unwrap(),
        clients: Vec::new(),
        clients_max: ENTRIES_MAX,
    };
    let (mut nat, mut nat64) = (Nat::new(&settings).unwrap(), Nat64::new(&nat64).unwrap());
    for change in changes {
        let applied = nat64.apply(&mut nat, change, 0);
        while let Some(event) = nat.take_event() {
            nat64.note(&mut nat, &event);
        }
        let mut list = Vec::new();
        let next = nat64.share_into(&nat, 0, (usize::MAX, usize::MAX), &mut list);
        assert!(next.is_none() && list.len() <= ENTRIES_MAX as usize);
        assert!(nat64.clients() <= ENTRIES_MAX as usize);
        if matches!(change, MappingChange::Present(_)) && applied.is_ok() {
            assert!(list.contains(change), "{change:?}");
        }
    }
}

/// Reads any octets as a stream of an active switch or a standby, and as the contents of messages with right checksums. What is read is
/// written again as it was. NAT64 accepts or refuses its mappings.
fn fuzz_replication(octets: &[u8]) -> bool {
    let _ = wire_tests::read_all(octets);
    let stream = wire_tests::framed(octets);
    let (messages, _) = wire_tests::read_all(&stream);
    let again = wire_tests::written(&messages);
    assert!(stream.starts_with(&again));
    for message in &messages {
        if let Message::MappingsIpv6 { changes, .. } = message {
            apply_to_nat64(changes);
        }
    }
    planted("switch-replication", || {
        let is_deep = |message: &Message| {
            match message {
            Message::Mappings { changes, .. } => changes.iter().any(|change| {
                matches!(change, MappingChange::Ended(saved) if saved.internal.port() > 50_000)
            }),
            _ => false,
        }
        };
        messages.iter().any(is_deep)
    });
    messages.len() > 1
}

#[test]
fn replication() {
    check(CRATE, "switch-replication", fuzz_replication);
}
