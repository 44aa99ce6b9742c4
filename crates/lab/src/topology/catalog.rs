// SPDX-License-Identifier: Apache-2.0
//! The fifteen named topologies of the vNet-SLA material (2015), in its order.

use super::kinds::ElementPlace;

/// Shape of a chain, without the tester at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// V.
    Vnf,
    /// S.
    Switch,
    /// V, S, V.
    VnfSwitchVnf,
    /// S, V, S, … V, S: a switch before and after every VNF, always the same switch.
    SwitchedVnfs,
}

/// Number of chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chains {
    /// One.
    One,
    /// The requested number, in parallel.
    Many,
}

/// Number of VNFs in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Fixed by the shape.
    Fixed,
    /// The requested number.
    Any,
}

/// A named topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Its name.
    pub name: &'static str,
    /// Its path for display: `[..]` is a guest.
    pub path: &'static str,
    /// The effect that it isolates.
    pub about: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Number of chains.
    pub chains: Chains,
    /// Number of VNFs in a chain.
    pub length: Length,
    /// Place of the switch.
    pub switch: ElementPlace,
    /// Place of the VNFs.
    pub vnf: ElementPlace,
}

impl CatalogEntry {
    const fn one(
        name: &'static str,
        path: &'static str,
        about: &'static str,
        shape: Shape,
        switch: ElementPlace,
        vnf: ElementPlace,
    ) -> Self {
        Self {
            name,
            path,
            about,
            shape,
            chains: Chains::One,
            length: Length::Fixed,
            switch,
            vnf,
        }
    }

    const fn many(self) -> Self {
        Self {
            chains: Chains::Many,
            ..self
        }
    }

    const fn long(self) -> Self {
        Self {
            length: Length::Any,
            ..self
        }
    }
}

use ElementPlace::{Guest, Host};
use Shape::{Switch, SwitchedVnfs, Vnf, VnfSwitchVnf};

/// The catalogue.
#[rustfmt::skip]
pub const CATALOG: [CatalogEntry; 15] = [
    CatalogEntry::one("vComp1-Host", "T - V - T", "a reference VNF on the host: the limit of ports and tester", Vnf, Host, Host),
    CatalogEntry::one("vComp1-VM", "T - [V] - T", "the same VNF in a guest: the cost of the guest", Vnf, Host, Guest),
    CatalogEntry::one("vComp2-VM2VM", "T - [V] - S - [V] - T", "the switch between two guest ports", VnfSwitchVnf, Host, Guest),
    CatalogEntry::one("vComp3-PHY2VM", "T - S - [V] - S - T", "physical to guest and back", SwitchedVnfs, Host, Guest),
    CatalogEntry::one("vNet1", "T - S - T", "the switch on the host alone", Switch, Host, Guest),
    CatalogEntry::one("vNet2", "T - [S] - T", "a switch in a guest alone", Switch, Guest, Guest),
    CatalogEntry::one("vNet3", "T - [V] - T", "any VNF under test in a guest alone", Vnf, Host, Guest),
    CatalogEntry::one("vNet4-1VNF", "T - S - [V] - S - T", "host switch and one VNF", SwitchedVnfs, Host, Guest),
    CatalogEntry::one("vNet4-nVNF", "n x (T - S - [V] - S - T)", "host switch and n VNFs side by side", SwitchedVnfs, Host, Guest).many(),
    CatalogEntry::one("vNet5-1VNF", "T - [S] - [V] - [S] - T", "guest switch and one VNF", SwitchedVnfs, Guest, Guest),
    CatalogEntry::one("vNet5-nVNF", "n x (T - [S] - [V] - [S] - T)", "guest switch and n VNFs side by side", SwitchedVnfs, Guest, Guest).many(),
    CatalogEntry::one("vNet6-1VNFch", "T - S - [V] - S - … - S - T", "host switch, one chain of VNFs", SwitchedVnfs, Host, Guest).long(),
    CatalogEntry::one("vNet6-nVNFch", "n x (T - S - [V] - S - … - S - T)", "host switch, n chains of VNFs", SwitchedVnfs, Host, Guest).long().many(),
    CatalogEntry::one("vNet7-1VNFch", "T - [S] - [V] - [S] - … - [S] - T", "guest switch, one chain of VNFs", SwitchedVnfs, Guest, Guest).long(),
    CatalogEntry::one("vNet7-nVNFch", "n x (T - [S] - [V] - [S] - … - [S] - T)", "guest switch, n chains of VNFs", SwitchedVnfs, Guest, Guest).long().many(),
];

/// Returns the topology of this name, ignoring case.
#[must_use]
pub fn named(name: &str) -> Option<&'static CatalogEntry> {
    CATALOG
        .iter()
        .find(|topology| topology.name.eq_ignore_ascii_case(name))
}
