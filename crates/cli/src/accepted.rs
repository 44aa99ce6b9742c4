// SPDX-License-Identifier: Apache-2.0
//! Tests that the switch accepts the file that `partition render --for quietwire` writes, for every value of every key of a
//! request.

use std::path::Path;

use quietwire_host::machines::two_packages_with_clusters;
use quietwire_host::partition::{
    CpuRequest, DataPlaneRequest, ForwardingRequest, GuestRequest, HostRequest, Idle,
    MachineRequest, NeighbourRequest, NicRequest, PartitionRequest, Plan, SiblingPolicy, plan,
};
use quietwire_host::render::Target;
use quietwire_host::{CpuList, CpuSequence};
use quietwire_switch::config::Settings;
use toml::{Table, Value};

/// Returns a request with a value for every key. A new key does not compile until it has a value here.
fn full() -> PartitionRequest {
    let host = || HostRequest {
        cpus: Some(CpuRequest::Count(1)),
        cache_percent: Some(10),
        bandwidth_percent: Some(50),
    };
    PartitionRequest {
        host: host(),
        control: Some(host()),
        service: Some(host()),
        forwarding: ForwardingRequest {
            cpus: Some(CpuRequest::Count(4)),
            siblings: SiblingPolicy::Idle,
            node: Some(0),
            cache_percent: Some(30),
            bandwidth_percent: Some(100),
            memory_mib: Some(2048),
            rx_ring_size: Some(1024),
            tx_ring_size: Some(1024),
            idle: Idle::Poll,
            data_plane: DataPlaneRequest::Ovs,
        },
        guests: vec![GuestRequest {
            name: "firewall".to_owned(),
            cpus: Some(CpuRequest::Count(2)),
            memory_mib: 1024,
            node: Some(1),
            cache_percent: Some(10),
            bandwidth_percent: Some(50),
        }],
        neighbours: vec![NeighbourRequest {
            name: "batch".to_owned(),
            cpus: Some(CpuRequest::Count(2)),
            node: Some(1),
            cache_percent: Some(10),
            bandwidth_percent: Some(50),
        }],
        nics: vec![NicRequest {
            pci: "0000:17:00.0".to_owned(),
            queues: Some(4),
            functions: Some(2),
            mtu: Some(1500),
        }],
        machine: MachineRequest {
            huge_page_kib: Some(2048),
            governor: Some("performance".to_owned()),
            boot_isolation: Some(true),
            iommu: Some(true),
        },
    }
}

/// Values to test for a key: all values of an enumeration, otherwise small, usual, large and refused values.
fn values(key: &str) -> Vec<Value> {
    let words = |words: &[&str]| words.iter().map(|word| Value::from(*word)).collect();
    let numbers = |numbers: &[i64]| numbers.iter().map(|number| Value::from(*number)).collect();
    match key {
        "cpus" => ["1", "2", "4", "\"2-5\"", "\"(2,3)\"", "\"0x3c\"", "0", "99"]
            .iter()
            .map(|text| format!("v = {text}").parse::<Table>().unwrap()["v"].clone())
            .collect(),
        "siblings" => words(&["idle", "forward"]),
        "idle" => Idle::ALL
            .iter()
            .map(|idle| Value::from(idle.name()))
            .collect(),
        "data-plane" => words(&["ovs", "vrouter"]),
        "node" => numbers(&[0, 1, 9]),
        "cache-percent" | "bandwidth-percent" => numbers(&[0, 1, 50, 100, 255]),
        "memory-mib" => numbers(&[0, 1, 1024, 8192, 1 << 40]),
        "rx-ring-size" | "tx-ring-size" => (0..16)
            .map(|bit| Value::from(1_i64 << bit))
            .chain([Value::from(100)])
            .collect(),
        "queues" => numbers(&[0, 1, 3, 5, 64, 65, 65535]),
        "functions" => numbers(&[0, 1, 8, 1000]),
        "mtu" => numbers(&[0, 45, 46, 1500, 9000, 9198, 9199, 65535]),
        "huge-page-kib" => numbers(&[2048, 1 << 20, 4]),
        "governor" => words(&["performance", "powersave"]),
        "boot-isolation" | "iommu" => vec![Value::from(true), Value::from(false)],
        "name" => words(&["other", "host", "a b"]),
        "pci" => words(&["65:00.0", "0000:ff:00.0"]),
        key => panic!("no values for {key}"),
    }
}

/// Returns a section of a request; for a list of sections, the first.
fn section<'a>(request: &'a mut Table, name: &str) -> &'a mut Table {
    match request.get_mut(name).unwrap() {
        Value::Table(table) => table,
        Value::Array(list) => list[0].as_table_mut().unwrap(),
        other => panic!("{name} is {other}"),
    }
}

/// Returns the plan of a request, or of the nearest feasible request.
fn planned(request: &str) -> Option<Plan> {
    let request =
        PartitionRequest::parse(request).unwrap_or_else(|error| panic!("{error}: {request}"));
    match plan(&two_packages_with_clusters().inventory(), &request) {
        Ok(plan) => Some(plan),
        Err(infeasible) => infeasible.nearest.map(|(_, plan)| plan),
    }
}

fn check(plan: &Plan, request: &str) {
    let text = &Target::Quietwire.render(plan)[0].text;
    let settings = Settings::parse(Path::new("switch.toml"), text)
        .unwrap_or_else(|error| panic!("{error}:\n{text}\nfor\n{request}"));
    let ports = settings.ports.clone().unwrap_or_default();
    for (port, nic) in ports.iter().zip(&plan.nics) {
        let queues = usize::from(port.rx_queues.unwrap());
        let mapped = nic.queues.iter().take(queues).map(|queue| queue.cpu);
        assert_eq!(
            port.rx_cpus,
            Some(mapped.collect::<CpuSequence>()),
            "{text}"
        );
    }
    let memory: u64 = plan.huge_pages.iter().map(|pool| pool.data_plane_mib).sum();
    assert_eq!(
        u64::from(settings.memory_mib.unwrap_or(0)),
        memory,
        "{text}"
    );
    let online: CpuList = "0-63".parse().unwrap();
    let switch = settings
        .plan(&online)
        .unwrap_or_else(|error| panic!("{error}:\n{text}\nfor\n{request}"));
    assert_eq!(switch.idle, plan.idle, "{text}");
}

#[test]
fn the_switch_accepts_the_file_for_every_value_of_every_key() {
    let full: Table = full().to_toml().unwrap().parse().unwrap();
    let (mut keys, mut accepted) = (0, 0);
    for name in full.keys().cloned().collect::<Vec<String>>() {
        for key in section(&mut full.clone(), &name).keys() {
            keys += 1;
            let mut found = 0;
            for value in values(key) {
                let mut request = full.clone();
                section(&mut request, &name).insert(key.clone(), value);
                let request = request.to_string();
                if let Some(plan) = planned(&request) {
                    check(&plan, &request);
                    found += 1;
                }
            }
            assert!(found >= 2, "[{name}] {key}: {found} values make a plan");
            accepted += found;
        }
    }
    assert!(
        keys > 35 && accepted > 100,
        "{keys} keys, {accepted} values"
    );
}
