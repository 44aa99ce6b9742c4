// SPDX-License-Identifier: Apache-2.0
//! Benchmark of verification: all static checks and one sample, on a fake machine with 128 CPUs and 2,000 threads, and on the
//! running machine.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use quietwire_host::partition::{Group, Plan, Role};
use quietwire_host::verify::{Sample, static_checks};

const CPUS: u32 = 128;
const THREADS: u32 = 2000;
const THREADS_A_PROCESS: u32 = 8;

fn group(role: Role, cpus: &str) -> Group {
    Group {
        role,
        name: role.name().to_owned(),
        cpus: cpus.parse().unwrap(),
        cores: Vec::new(),
        nodes: vec![0],
        memory_mib: 0,
        class: None,
    }
}

fn plan() -> Plan {
    Plan {
        groups: vec![
            group(Role::Host, "0-3,64-67"),
            group(Role::Forwarding, "4-31,68-95"),
            group(Role::Guest, "32-63,96-127"),
        ],
        housekeeping: "0-3,64-67".parse().unwrap(),
        ..Plan::default()
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn machine() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for cpu in 0..CPUS {
        let at = format!("sys/devices/system/cpu/cpu{cpu}");
        let siblings = format!("{},{}", cpu % 64, cpu % 64 + 64);
        write(
            root,
            &format!("{at}/topology/thread_siblings_list"),
            &siblings,
        );
        write(root, &format!("{at}/cache/index3/shared_cpu_list"), "0-127");
    }
    let heading: Vec<String> = (0..CPUS).map(|cpu| format!("CPU{cpu}")).collect();
    let counts = " 1".repeat(CPUS as usize);
    let mut interrupts = heading.join(" ") + "\n";
    for irq in 0..600 {
        write(root, &format!("proc/irq/{irq}/smp_affinity_list"), "0-3");
        interrupts += &format!("{irq}:{counts} PCI-MSI {irq}-edge eth0-rx\n");
    }
    write(root, "proc/interrupts", &interrupts);
    for thread in 0..THREADS {
        let process = 1000 + thread / THREADS_A_PROCESS * THREADS_A_PROCESS;
        let tid = 1000 + thread;
        let at = format!("proc/{process}/task/{tid}");
        write(root, &format!("proc/{process}/comm"), "java\n");
        let status = "Name:\tjava\nVmSize:\t1 kB\nCpus_allowed_list:\t0-3,64-67\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t1\n";
        write(root, &format!("{at}/status"), status);
        let stat = format!(
            "{tid} (java) S 1 1 1 0 -1 4194304 0 0 0 0 5 5 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 3 0 0 0"
        );
        write(root, &format!("{at}/stat"), &stat);
    }
    directory
}

fn verify(criterion: &mut Criterion) {
    let made = machine();
    let plan = plan();
    for (name, root) in [("made", made.path()), ("running", Path::new("/"))] {
        criterion.bench_function(&format!("static/{name}"), |bencher| {
            bencher.iter(|| black_box(static_checks(root, &plan)));
        });
        criterion.bench_function(&format!("look/{name}"), |bencher| {
            bencher.iter(|| black_box(Sample::take(root, &plan)));
        });
    }
}

criterion_group!(benches, verify);
criterion_main!(benches);
