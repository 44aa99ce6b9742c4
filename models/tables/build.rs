// SPDX-License-Identifier: Apache-2.0
//! Compiles the tables in the sizes of models.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
