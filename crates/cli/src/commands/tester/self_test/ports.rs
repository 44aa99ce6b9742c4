// SPDX-License-Identifier: Apache-2.0
//! Ports of tester and device, two each, and their sockets.

use anyhow::Result;
use clap::ValueEnum;
use quietwire_dpdk::{PortUri, Role};
use serde::Serialize;
use tempfile::TempDir;

/// Value of `--link`: the tester's end of both connections to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Link {
    /// memif server. The device owns the buffers of the rings.
    MemifServer,
    /// memif client, which owns the buffers.
    MemifClient,
    /// Guest side of vhost-user, which owns the buffers.
    VirtioUser,
    /// Guest side of vhost-user with packed rings.
    VirtioUserPacked,
    /// Host side of vhost-user. The device owns the buffers.
    Vhost,
}

impl Link {
    /// Returns scheme and options of the URIs: of the tester, then of the device.
    fn ends(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::MemifServer => [("memif", "role=server"), ("memif", "role=client")],
            Self::MemifClient => [("memif", "role=client"), ("memif", "role=server")],
            Self::VirtioUser => [("virtio-user", "role=client"), ("vhost", "role=server")],
            Self::VirtioUserPacked => [
                ("virtio-user", "role=client&packed=on"),
                ("vhost", "role=server"),
            ],
            Self::Vhost => [("vhost", "role=server"), ("virtio-user", "role=client")],
        }
    }

    fn is_memif(self) -> bool {
        matches!(self, Self::MemifServer | Self::MemifClient)
    }
}

/// URIs of all ports, and the directory of their sockets.
#[derive(Debug)]
pub(super) struct Ports {
    /// Ports of the tester.
    pub(super) tester: Vec<PortUri>,
    /// URIs of the device.
    pub(super) device: [String; 2],
    /// Removed on drop. memif has abstract sockets, which leave no files behind.
    _directory: Option<TempDir>,
}

impl Ports {
    /// Chooses the sockets. No port is opened yet.
    ///
    /// # Errors
    /// The system's error if the directory of the sockets cannot be created.
    pub(super) fn new(link: Link) -> Result<Self> {
        let directory = match link.is_memif() {
            true => None,
            false => Some(
                tempfile::Builder::new()
                    .prefix("quietwire-self-test-")
                    .tempdir()?,
            ),
        };
        let process = std::process::id();
        let socket = |side: &str| match &directory {
            Some(directory) => format!("{}/{side}.sock", directory.path().display()),
            None => format!("@quietwire-self-test-{process}-{side}"),
        };
        let uris = |(scheme, options): (&str, &str)| {
            ["left", "right"].map(|side| format!("{scheme}:{}?{options}", socket(side)))
        };
        let [tester, device] = link.ends().map(uris);
        let tester = tester.iter().map(|uri| uri.parse::<PortUri>());
        Ok(Self {
            tester: tester.collect::<Result<_, _>>()?,
            device,
            _directory: directory,
        })
    }

    /// Returns true if the device creates the sockets. It must run before the tester connects.
    pub(super) fn need_device(&self) -> bool {
        let mut roles = self.tester.iter().map(PortUri::role);
        roles.any(|role| role == Some(Role::Client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path of a URI.
    fn path(uri: &str) -> &str {
        let (_, rest) = uri.split_once(':').unwrap();
        rest.split('?').next().unwrap()
    }

    #[test]
    fn both_ends_of_a_link_have_the_same_sockets_and_opposite_roles() {
        for link in Link::value_variants() {
            let ports = Ports::new(*link).unwrap();
            for (own, other) in ports.tester.iter().zip(&ports.device) {
                assert_eq!(path(&own.to_string()), path(other), "{link:?}");
                let other: PortUri = other.parse().unwrap();
                assert_ne!(own.role(), other.role(), "{link:?}");
                let is_client = own.role() == Some(Role::Client);
                assert_eq!(is_client, ports.need_device(), "{link:?}");
            }
            let [left, right] = &ports.device;
            assert_ne!(path(left), path(right));
            // Sockets in the file system are removed with their directory.
            let directory = std::path::Path::new(path(left))
                .parent()
                .unwrap()
                .to_owned();
            assert_eq!(directory.is_dir(), !link.is_memif(), "{link:?}");
            drop(ports);
            assert!(link.is_memif() || !directory.exists(), "{link:?}");
        }
    }
}
