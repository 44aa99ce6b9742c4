// SPDX-License-Identifier: Apache-2.0
//! Benchmark of planning for a machine with 512 CPUs.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use quietwire_host::machines;
use quietwire_host::partition::{PartitionRequest, derive, plan};

const REQUEST: &str = r#"
    [control]
    [service]
    [forwarding]
    cpus = 16
    [[guest]]
    name = "a"
    cpus = 64
    memory-mib = 8192
    [[guest]]
    name = "b"
    cpus = 64
    memory-mib = 8192
    [[neighbour]]
    name = "n"
    cpus = 100
    [[nic]]
    pci = "0000:21:00.0"
    [[nic]]
    pci = "0000:e1:00.0"
"#;

fn plans(criterion: &mut Criterion) {
    let machine = machines::largest().inventory();
    let request = [
        ("derived", derive(&machine)),
        (
            "requested",
            PartitionRequest::parse(REQUEST).unwrap_or_default(),
        ),
    ];
    for (name, request) in request {
        criterion.bench_function(&format!("plan of 512 CPUs, {name}"), |bencher| {
            bencher.iter(|| plan(black_box(&machine), black_box(&request)));
        });
    }
}

criterion_group!(benches, plans);
criterion_main!(benches);
