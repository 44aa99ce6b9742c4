// SPDX-License-Identifier: Apache-2.0
//! Build script: gives the shared object its name. The number in it is that of the binary interface (`QW_ABI_VERSION` of the header).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libquietwire.so.1");
}
