// SPDX-License-Identifier: Apache-2.0
//! Attributes of network interfaces in sysfs (Documentation/ABI/testing/sysfs-class-net). They are those of the network namespace in which
//! sysfs was mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Returns the path of an attribute of an interface, such as `mtu`; for an empty name the directory of the interface.
#[must_use]
pub fn path(interface: &str, attribute: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface).join(attribute)
}

/// Returns true if there is an interface of this name.
#[must_use]
pub fn exists(interface: &str) -> bool {
    path(interface, "").exists()
}

/// Returns the value of an attribute. `None` if it is not readable, such as the carrier of an interface that is set down, or no such value.
#[must_use]
pub fn value<T: FromStr>(interface: &str, attribute: &str) -> Option<T> {
    let text = fs::read_to_string(path(interface, attribute)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_loopback_interface_are_read() {
        assert!(exists("lo") && !exists("no-such-device"));
        assert!(value::<u32>("lo", "mtu").is_some_and(|mtu| mtu > 0));
        assert_eq!(value::<u32>("lo", "no-such-attribute"), None);
        assert_eq!(value::<u32>("lo", "address"), None);
    }
}
