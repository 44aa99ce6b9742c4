// SPDX-License-Identifier: Apache-2.0
//! The agent in a guest: quietwire itself, started by the guest's init. The host sends it commands over a virtio-serial channel
//! as lines of JSON.

pub mod client;
mod function;
mod linux;
mod ports;
pub mod protocol;
pub mod serve;
mod switch;
mod testpmd;
mod vnf;
