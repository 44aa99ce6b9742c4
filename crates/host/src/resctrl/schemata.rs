// SPDX-License-Identifier: Apache-2.0
//! Schemata: which ways of each cache, and how much of each memory's bandwidth, a class may use.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a class may use, by resource (`L3`, `MB`) and domain (the number of a cache or a memory controller). Ways are
/// masks; shares of bandwidth are numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata(pub BTreeMap<String, BTreeMap<u32, u64>>);

/// Why a class cannot have this.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchemataError {
    /// Not in the form `RESOURCE:domain=value;…`.
    #[error("'{0}' is no line of schemata; they look like L3:0=ff;1=ff or MB:0=50;1=100")]
    Syntax(String),
    /// The machine does not divide this, or the kernel does not know how.
    #[error("resource {resource} cannot be divided on this machine; {known} can")]
    UnknownResource {
        /// What was asked for.
        resource: String,
        /// What there is.
        known: String,
    },
    /// Ways that the cache does not have.
    #[error(
        "{resource}:{domain}={mask:x} has ways that the cache does not have; all of them are {all:x}"
    )]
    OutOfRange {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Asked for.
        mask: u64,
        /// There are.
        all: u64,
    },
    /// Ways with a gap between them.
    #[error(
        "{resource}:{domain}={mask:x} has a gap, and this processor's classes have ways that are neighbours"
    )]
    Gap {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Asked for.
        mask: u64,
    },
    /// Too few ways.
    #[error("{resource}:{domain}={mask:x} has fewer than {min} ways, which a class has at least")]
    TooFew {
        /// Resource.
        resource: String,
        /// Domain.
        domain: u32,
        /// Asked for.
        mask: u64,
        /// At least.
        min: u32,
    },
    /// A share that the processor does not know.
    #[error("MB:{domain}={share} is outside {min}..={max}")]
    Share {
        /// Domain.
        domain: u32,
        /// Asked for.
        share: u64,
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
}

impl Schemata {
    /// One resource of one domain.
    #[must_use]
    pub fn get(&self, resource: &str, domain: u32) -> Option<u64> {
        self.0.get(resource)?.get(&domain).copied()
    }

    /// Sets one resource of one domain.
    pub fn set(&mut self, resource: &str, domain: u32, value: u64) {
        let of_resource = self.0.entry(resource.to_owned()).or_default();
        of_resource.insert(domain, value);
    }

    /// Only what `other` names as well.
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
    /// As the kernel takes it: a line a resource, each with its end.
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
