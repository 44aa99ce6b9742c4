// SPDX-License-Identifier: Apache-2.0
//! The agent in a guest: quietwire itself, run by the guest's init, asked by the host over a virtio-serial channel in lines
//! of JSON.

pub mod client;
mod function;
mod linux;
mod ports;
pub mod protocol;
pub mod serve;
mod switch;
mod testpmd;
mod vnf;
