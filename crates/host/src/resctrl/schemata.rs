// SPDX-License-Identifier: Apache-2.0
//! Schemata: cache ways and memory bandwidth of a class of service.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Allocation of a class by resource (`L3`, `MB`) and domain (the number of a cache or a memory controller). Ways are masks;
/// bandwidth limits are numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata(pub BTreeMap<String, BTreeMap<u32, u64>>);

/// Errors in schemata.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchemataError {
    /// A line is not in the form `RESOURCE:domain=value;…`.
    #[error("'{0}' is not a valid schemata line (examples: L3:0=ff;1=ff or MB:0=50;1=100)")]
    Syntax(String),
    /// The machine or the kernel does not support allocation of this resource.
    #[error(
        "allocation of resource {resource} is not supported on this machine (supported: {known})"
    )]
    UnknownResource {
        /// Requested resource.
        resource: String,
        /// Supported resources.
        known: String,
    },
    /// The mask has ways that the cache does not have.
    #[error(
        "{resource}:{domain}={mask:x} has ways that the cache does not have (all ways: {all:x})"
    )]
    OutOfRange {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Requested value.
        mask: u64,
        /// All ways of the cache.
        all: u64,
    },
    /// The mask is not contiguous.
    #[error("{resource}:{domain}={mask:x} is not contiguous, as this processor requires")]
    Gap {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Requested value.
        mask: u64,
    },
    /// The mask has too few ways.
    #[error("{resource}:{domain}={mask:x} has fewer than the required {min} ways")]
    TooFew {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Requested value.
        mask: u64,
        /// Minimum.
        min: u32,
    },
    /// The bandwidth limit is out of range.
    #[error("MB:{domain}={share} is out of range (use {min} to {max})")]
    Share {
        /// Domain.
        domain: u32,
        /// Requested value.
        share: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
}

impl Schemata {
    /// Returns the value of a resource in a domain.
    #[must_use]
    pub fn get(&self, resource: &str, domain: u32) -> Option<u64> {
        self.0.get(resource)?.get(&domain).copied()
    }

    /// Sets the value of a resource in a domain.
    pub fn set(&mut self, resource: &str, domain: u32, value: u64) {
        let of_resource = self.0.entry(resource.to_owned()).or_default();
        of_resource.insert(domain, value);
    }

    /// Returns only the resources and domains that `other` has as well.
    #[must_use]
    pub fn restricted_to(&self, other: &Self) -> Self {
        let mut kept = Self::default();
        for (resource, domains) in &other.0 {
            for domain in domains.keys() {
                if let Some(value) = self.get(resource, *domain) {
                    kept.set(resource, *domain, value);
                }
            }
        }
        kept
    }
}

impl FromStr for Schemata {
    type Err = SchemataError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut schemata = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let bad = || SchemataError::Syntax(line.trim().to_owned());
            let (resource, values) = line.split_once(':').ok_or_else(bad)?;
            let resource = resource.trim();
            for part in values.trim().split(';') {
                let (domain, value) = part.split_once('=').ok_or_else(bad)?;
                let domain: u32 = domain.trim().parse().map_err(|_| bad())?;
                let radix = if resource.starts_with('L') { 16 } else { 10 };
                let value = u64::from_str_radix(value.trim(), radix).map_err(|_| bad())?;
                if schemata.get(resource, domain).is_some() {
                    return Err(bad());
                }
                schemata.set(resource, domain, value);
            }
        }
        Ok(schemata)
    }
}

impl fmt::Display for Schemata {
    /// Formats the schemata as the kernel accepts them: one line for each resource.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (resource, domains) in &self.0 {
            write!(f, "{resource}:")?;
            for (index, (domain, value)) in domains.iter().enumerate() {
                let separator = if index == 0 { "" } else { ";" };
                if resource.starts_with('L') {
                    write!(f, "{separator}{domain}={value:x}")?;
                } else {
                    write!(f, "{separator}{domain}={value}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
