// SPDX-License-Identifier: Apache-2.0
//! A node of a Kubernetes cluster: ports of a running switch for pods, through the interfaces that clusters have.
//!
//! Must not know packets.

pub mod cni;
