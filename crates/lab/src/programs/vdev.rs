// SPDX-License-Identifier: Apache-2.0
//! Options of DPDK's own programs: CPUs, memory, ports.

use quietwire_base::Deadline;
use quietwire_host::journal::Change;
use quietwire_host::settings;

use crate::counts::statistics_of_program;
use crate::element::{Attachment, ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::{DeviceThread, ThreadRole};

/// Memory of a program without large tables, MiB.
pub(super) const MEMORY_MIB: u64 = 128;
/// Size of a huge page, MiB.
const HUGE_PAGE_MIB: u64 = 2;

/// Options of the environment layer (EAL): the main thread on the remaining CPUs, one worker on each CPU of the element.
pub(super) fn eal_options(plan: &Plan, memory_mib: u64) -> Result<Vec<String>, LabError> {
    let rest = plan.rest.first().map_or(0, |cpu| cpu.0);
    let lcores = std::iter::once(rest).chain(plan.cpus.iter().map(|cpu| cpu.0));
    options_on(lcores, plan, memory_mib)
}

/// Options of DPDK's examples, whose main thread forwards like the others: one thread on each of the first
/// `threads_max` CPUs of the element.
pub(super) fn example_options(
    plan: &Plan,
    threads_max: usize,
    memory_mib: u64,
) -> Result<Vec<String>, LabError> {
    let lcores = plan.cpus.iter().map(|cpu| cpu.0).take(threads_max);
    options_on(lcores, plan, memory_mib)
}

/// Returns the EAL options for one thread on each of these CPUs; the first is the main thread.
fn options_on(
    cpus: impl Iterator<Item = u32>,
    plan: &Plan,
    memory_mib: u64,
) -> Result<Vec<String>, LabError> {
    let lcores = cpus
        .enumerate()
        .map(|(index, cpu)| format!("{index}@{cpu}"));
    let lcores: Vec<String> = lcores.collect();
    let mut options = vec![
        "--lcores".to_owned(),
        lcores.join(","),
        "--main-lcore=0".to_owned(),
        format!("--file-prefix={}", plan.tag),
        "-m".to_owned(),
        memory_mib.to_string(),
    ];
    options.extend(memory_options(memory_mib));
    let ports = plan.ports.iter().enumerate();
    let devices: Vec<String> = ports
        .map(|(index, port)| device(index, &port.attachment))
        .collect::<Result<_, LabError>>()?;
    if !devices.iter().any(|device| device.starts_with("-a")) {
        options.push("--no-pci".to_owned());
    }
    options.extend(devices);
    Ok(options)
}

/// Registers the removal of the directory that DPDK creates and leaves behind.
pub(super) fn claim_runtime_directory(
    plan: &Plan,
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    let path = std::path::Path::new("/var/run/dpdk").join(&plan.tag);
    context.record(&Change::DirectoryCreated { path })
}

/// Starts a DPDK program and waits until its log contains words, which `ready` has with a description of what is missing until then.
pub(super) fn start(
    plan: &Plan,
    context: &mut ElementContext<'_>,
    processes: &mut Vec<Process>,
    command: &[String],
    ready: (&str, &str),
) -> Result<(), LabError> {
    claim_runtime_directory(plan, context)?;
    processes.push(context.spawn(plan, "log", &[], command)?);
    wait_for_words(plan, context, processes, "begin to forward", ready)
}

/// Waits until the log of a program contains these words, which show that it does `what`; `not_yet` describes what is missing until then.
pub(super) fn wait_for_words(
    plan: &Plan,
    context: &ElementContext<'_>,
    processes: &mut [Process],
    what: &str,
    (words, not_yet): (&str, &str),
) -> Result<(), LabError> {
    let log = plan.directory.join("log");
    context.wait_until(plan, processes, what, || {
        let printed = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
        match printed.contains(words) {
            true => Ok(()),
            false => Err(not_yet.to_owned()),
        }
    })
}

/// Returns the free huge-page memory, MiB.
pub(super) fn free_huge_memory_mib() -> u64 {
    settings::huge_pages_free()
        .unwrap_or(0)
        .saturating_mul(HUGE_PAGE_MIB)
}

/// Returns the EAL options of memory: huge pages if enough are free, released when the program ends; otherwise ordinary pages.
pub(super) fn memory_options(memory_mib: u64) -> Vec<String> {
    let free = free_huge_memory_mib();
    let options: &[&str] = if free >= memory_mib.saturating_mul(2) {
        &["--in-memory", "--single-file-segments"]
    } else {
        &["--no-huge", "--no-shconf"]
    };
    options.iter().map(|option| (*option).to_owned()).collect()
}

fn device(index: usize, attachment: &Attachment) -> Result<String, LabError> {
    Ok(match attachment {
        Attachment::Memif { socket, is_server } => format!(
            "--vdev=net_memif{index},role={},id=0,socket={},socket-abstract=no,rsize=10",
            if *is_server { "server" } else { "client" },
            socket.display()
        ),
        Attachment::Vhost { socket, is_server } => format!(
            "--vdev=net_vhost{index},iface={},queues=1,client={}",
            socket.display(),
            u8::from(!*is_server)
        ),
        Attachment::VirtioUser { socket, is_server } => format!(
            "--vdev=net_virtio_user{index},path={},queues=1,queue_size=1024,server={}",
            socket.display(),
            u8::from(*is_server)
        ),
        Attachment::Interface { name } => format!("--vdev=net_af_packet{index},iface={name}"),
        Attachment::Pci { address } => format!("-a{address}"),
        Attachment::Tap { .. } => {
            return Err(LabError::Topology(
                "a tap link connects only a guest and a kernel switch".to_owned(),
            ));
        }
    })
}

/// Words in the log of the examples once they forward, and what is missing until then.
pub(super) const EXAMPLE_READY: (&str, &str) =
    ("entering main loop", "it has not entered its main loop");

/// Extended statistics of its ports.
pub(super) fn own_view(plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
    let statistics = statistics_of_program(&plan.tag, plan.ports.len(), deadline)?;
    OwnView::of_statistics(statistics)
}

/// Threads of a DPDK process: workers forward, the others do not.
pub(super) fn threads(
    pid: u32,
    is_worker: impl Fn(&str) -> bool,
) -> Result<Vec<DeviceThread>, String> {
    let threads = quietwire_host::threads::threads_of(std::path::Path::new("/"), pid)
        .map_err(|error| error.to_string())?;
    let reported = threads.into_iter().map(|thread| DeviceThread {
        tid: thread.tid,
        role: if is_worker(&thread.name) {
            ThreadRole::Forwarding
        } else {
            ThreadRole::Control
        },
        name: thread.name,
        cpus: thread.cpus,
    });
    Ok(reported.collect())
}

/// Threads of a process whose main thread, which has the number of the process, forwards like the workers.
pub(super) fn threads_with_main(
    pid: u32,
    is_worker: impl Fn(&str) -> bool,
) -> Result<Vec<DeviceThread>, String> {
    let mut reported = threads(pid, is_worker)?;
    let main = reported
        .iter_mut()
        .find(|thread| u32::try_from(thread.tid) == Ok(pid));
    main.ok_or("its main thread is gone")?.role = ThreadRole::Forwarding;
    Ok(reported)
}

/// Names of worker threads in DPDK 22.11 and later.
pub(super) fn is_worker(name: &str) -> bool {
    name.starts_with("lcore-worker")
        || name.starts_with("rte-worker")
        || name.starts_with("dpdk-worker")
}
