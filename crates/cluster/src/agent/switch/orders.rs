// SPDX-License-Identifier: Apache-2.0
//! Requests of the agent to a switch.

use std::collections::BTreeSet;
use std::path::Path;

use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_switch::config::Change;
use quietwire_switch::config::layer3::RouteSetting;
use quietwire_switch::control::Request;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::start;
use crate::cni::RunningSwitch;

/// Most characters of a version. This is the bound of the schema.
const VERSION_MAX: usize = 64;

/// Requests of the agent to a switch.
pub(in crate::agent) trait Orders {
    /// Makes a change.
    ///
    /// # Errors
    /// The message of the switch.
    fn change(&self, change: Change) -> Result<(), String>;

    /// Returns the names of all objects, the connection tracking, and the forwarding CPUs.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    fn names(&self) -> Result<Names, String>;

    /// Returns true if the VRF of a route has a static route to its prefix.
    ///
    /// # Errors
    /// The message of the switch.
    fn has_route(&self, route: &RouteSetting) -> Result<bool, String>;

    /// Adds a static route.
    ///
    /// # Errors
    /// The message of the switch.
    fn add_route(&self, route: RouteSetting) -> Result<(), String>;

    /// Removes the static route to the prefix of a route.
    ///
    /// # Errors
    /// The message of the switch.
    fn delete_route(&self, route: RouteSetting) -> Result<(), String>;
}

/// Names of the objects of a switch, its connection tracking, and its forwarding CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::agent) struct Names {
    pub(super) ports: BTreeSet<String>,
    pub(super) bridges: BTreeSet<String>,
    pub(super) vrfs: BTreeSet<String>,
    pub(super) interfaces: BTreeSet<String>,
    pub(super) nats: BTreeSet<String>,
    pub(super) load_balancers: BTreeSet<String>,
    pub(super) steering: BTreeSet<String>,
    /// Section of connection tracking in the running configuration. None without it.
    pub(super) connections: Option<serde_json::Value>,
    pub(super) forwarding_cpus: CpuList,
    /// Identity of the running switch, which another start does not have. None if it is unknown.
    pub(super) start: Option<String>,
}

/// The switch at a control socket.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Running(RunningSwitch);

impl Running {
    pub(in crate::agent) fn new(socket: &Path) -> Self {
        Self(RunningSwitch::new(socket))
    }

    /// Returns the version of the switch.
    ///
    /// # Errors
    /// No switch runs, or it does not reply.
    pub(in crate::agent) fn version(&self) -> Result<String, String> {
        let version: String = self.ask(&Request::Version)?;
        Ok(version.chars().take(VERSION_MAX).collect())
    }

    /// Sends a request whose reply is of no interest.
    fn order(&self, request: &Request) -> Result<(), String> {
        self.ask::<IgnoredAny>(request).map(|_| ())
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, String> {
        self.0.ask(request).map_err(|error| error.to_string())
    }
}

impl Orders for Running {
    fn change(&self, change: Change) -> Result<(), String> {
        self.order(&Request::Change(Box::new(change)))
    }

    fn names(&self) -> Result<Names, String> {
        // Read first: a switch that starts meanwhile has another identity in the next pass.
        let start = start::identity(self.0.socket());
        let objects = self.0.objects().map_err(|error| error.to_string())?;
        let names = |all: Vec<String>| all.into_iter().collect();
        Ok(Names {
            ports: names(objects.ports),
            bridges: names(objects.bridges),
            vrfs: names(objects.vrfs),
            interfaces: names(objects.interfaces),
            nats: names(objects.nats),
            load_balancers: names(objects.load_balancers),
            steering: names(objects.steering),
            connections: objects.connections,
            forwarding_cpus: objects.forwarding_cpus,
            start,
        })
    }

    fn has_route(&self, route: &RouteSetting) -> Result<bool, String> {
        #[derive(Deserialize)]
        struct RouteInfo {
            prefix: IpNet,
            source: String,
        }
        #[derive(Deserialize)]
        struct Page {
            routes: Vec<RouteInfo>,
        }
        let prefix = route.prefix.trunc();
        // The prefix itself is the first of those within it.
        let request = Request::ShowRoutes {
            vrf: route.vrf.clone(),
            prefix: Some(prefix),
            limit: 1,
            after: None,
        };
        let page: Page = self.ask(&request)?;
        let mut shown = page.routes.iter();
        Ok(shown.any(|one| one.prefix == prefix && one.source == "static"))
    }

    fn add_route(&self, route: RouteSetting) -> Result<(), String> {
        self.order(&Request::AddRoutes(vec![route]))
    }

    fn delete_route(&self, route: RouteSetting) -> Result<(), String> {
        self.order(&Request::DelRoutes {
            vrf: route.vrf,
            prefixes: vec![route.prefix],
        })
    }
}
