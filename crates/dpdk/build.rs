// SPDX-License-Identifier: Apache-2.0
//! Build script: finds libdpdk through pkg-config, compiles the shim and generates the bindings.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Functions of DPDK in the bindings. Others are left out.
const FUNCTIONS: &[&str] = &[
    "qw_.*",
    "rte_eal_get_runtime_dir",
    "rte_eal_init",
    "rte_mp_disable",
    "rte_strerror",
    "rte_thread_register",
    "rte_thread_unregister",
    "rte_get_tsc_hz",
    "rte_version",
    "rte_log_set_global_level",
    "rte_openlog_stream",
    "rte_pktmbuf_pool_create",
    "rte_pktmbuf_free_bulk",
    "rte_pktmbuf_copy",
    "rte_mempool_free",
    "rte_mempool_avail_count",
    "rte_mempool_lookup",
    "rte_mempool_mem_iter",
    "rte_dev_probe",
    "rte_dev_remove",
    "rte_eth_dev_get_port_by_name",
    "rte_eth_dev_info_get",
    "rte_eth_dev_configure",
    "rte_eth_dev_count_total",
    "rte_eth_dev_adjust_nb_rx_tx_desc",
    "rte_eth_dev_start",
    "rte_eth_dev_stop",
    "rte_eth_dev_close",
    "rte_eth_dev_socket_id",
    "rte_eth_dev_set_mtu",
    "rte_eth_dev_rx_intr_enable",
    "rte_eth_dev_rx_intr_disable",
    "rte_eth_dev_rx_intr_ctl_q_get_fd",
    "rte_eth_rx_queue_setup",
    "rte_eth_tx_queue_setup",
    "rte_eth_allmulticast_disable",
    "rte_eth_allmulticast_enable",
    "rte_eth_allmulticast_get",
    "rte_eth_promiscuous_disable",
    "rte_eth_promiscuous_enable",
    "rte_eth_promiscuous_get",
    "rte_eth_macaddr_get",
    "rte_eth_stats_get",
    "rte_eth_xstats_get",
    "rte_eth_xstats_get_names",
    "rte_eth_rx_queue_info_get",
    "rte_eth_tx_queue_info_get",
];

const TYPES: &[&str] = &[
    "qw_flow",
    "qw_mbuf_offset",
    "rte_eth_dev_info",
    "rte_eth_conf",
    "rte_eth_fc_mode",
    "rte_eth_stats",
    "rte_eth_xstat",
    "rte_eth_xstat_name",
    "rte_eth_rxq_info",
    "rte_eth_txq_info",
    "rte_ether_addr",
];

const VARIABLES: &[&str] = &[
    "RTE_MAX_ETHPORTS",
    "RTE_MBUF_DEFAULT_DATAROOM",
    "RTE_PKTMBUF_HEADROOM",
];

/// Oldest libdpdk whose API these bindings were written for.
const DPDK_VERSION_MIN: &str = "22.11";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=shim/shim.h");
    println!("cargo:rerun-if-changed=shim/shim.c");
    println!("cargo:rerun-if-changed=shim/flow.c");
    let flags = dpdk_cflags()?;

    let mut shim = cc::Build::new();
    shim.files(["shim/shim.c", "shim/flow.c"])
        .opt_level(3)
        .warnings(false);
    for flag in &flags {
        shim.flag(flag);
    }
    shim.try_compile("quietwire_shim")?;
    // After the shim, so that the linker resolves the shim's own references.
    probe(true)?;

    let mut builder = bindgen::Builder::default()
        .header("shim/shim.h")
        .clang_args(&flags)
        .allowlist_recursively(true)
        .layout_tests(false)
        .derive_default(true)
        .generate_comments(false)
        .prepend_enum_name(false)
        // Rust only passes pointers to these types. It accesses fields of buffers by the offsets of `qw_mbuf_offset`.
        .opaque_type("rte_mbuf|rte_mempool");
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    for name in VARIABLES {
        builder = builder.allowlist_var(name);
    }
    let out = PathBuf::from(env::var("OUT_DIR")?).join("bindings.rs");
    builder.generate()?.write_to_file(out)?;
    Ok(())
}

fn probe(emit: bool) -> Result<(), String> {
    pkg_config::Config::new()
        .atleast_version(DPDK_VERSION_MIN)
        .cargo_metadata(emit)
        .probe("libdpdk")
        .map(|_| ())
        .map_err(|error| {
            format!("libdpdk {DPDK_VERSION_MIN} or later not found (run scripts/setup, or `apt-get install libdpdk-dev pkg-config`)\n{error}")
        })
}

/// Returns the compiler flags of libdpdk. It calls pkg-config directly because the crate drops `-include` and `-march`.
fn dpdk_cflags() -> Result<Vec<String>, Box<dyn Error>> {
    probe(false)?;
    let output = Command::new("pkg-config")
        .args(["--cflags", "libdpdk"])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?
        .split_whitespace()
        .map(str::to_owned)
        .collect())
}
