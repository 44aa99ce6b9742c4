// SPDX-License-Identifier: Apache-2.0
//! Guests: virtual machines (QEMU) with their own kernel, under KVM if guests boot under it on this machine, otherwise in software
//! emulation; their image, and the agent that runs in them.

pub mod agent;
mod command;
pub mod console;
mod image;
mod kvm;
pub(crate) mod lines;
mod qmp;
mod running;
mod spec;

pub use agent::client::Agent;
pub use command::port_address;
pub use image::Image;
pub use kvm::{Acceleration, Accelerator, acceleration};
pub use running::{Guest, GuestRecord, VcpuThread};
pub use spec::{
    AcceleratorChoice, FORWARDING, GuestPaths, GuestPort, GuestSpec, PORTS_MAX, PortBackend,
    ReadySignal, SocketRole,
};

#[cfg(test)]
pub(crate) use spec::tests::spec as example_spec;
