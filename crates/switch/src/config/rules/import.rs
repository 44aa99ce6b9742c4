// SPDX-License-Identifier: Apache-2.0
//! Import of rules from nftables (`nft -j list ruleset`) and iptables (`iptables-save`). One base chain becomes the filter rules; jumps to
//! other chains are expanded. What a filter rule cannot express is listed with its place, and never left out in silence.

// Files of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod chains;
mod condition;
mod hook;
mod icmp;
mod iptables;
mod leaving;
mod marks;
mod nft;
mod order;
mod statements;
#[cfg(test)]
mod tests;

use quietwire_tables::filter::{Action, Element, PortName, RULES_MAX, SetType};
use serde::Serialize;

use super::{RuleSetting, SetSetting};

pub use chains::Missing;
pub use hook::Hook;

/// Maximum length of a file, octets.
pub const IMPORT_MAX: usize = 64 << 20;

/// Imported rules, and the parts that could not be expressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Default action.
    pub default: Action,
    /// Sets.
    pub sets: Vec<SetSetting>,
    /// Rules.
    pub rules: Vec<RuleSetting>,
    /// Rules and sets that cannot be expressed.
    pub missing: Vec<Missing>,
    /// Chains of other hooks, and other tables: not imported.
    pub others: Vec<String>,
}

impl Imported {
    /// Imports the chain of a hook. A text that begins with `{` is that of nftables.
    ///
    /// # Errors
    /// The problem of a text that is neither, or without such a chain.
    pub fn parse(text: &str, hook: Hook) -> Result<Self, String> {
        if text.len() > IMPORT_MAX {
            return Err(format!("longer than {IMPORT_MAX} octets"));
        }
        let mut source = match text.trim_start().starts_with('{') {
            true => nft::read(text, hook)?,
            false => iptables::read(text, hook)?,
        };
        source
            .chains
            .values_mut()
            .for_each(chains::Chain::join_statements);
        let expanded = source.expand(hook);
        let others = source.others;
        if expanded.rules.len() > RULES_MAX {
            return Err(format!("more than {RULES_MAX} rules after expansion"));
        }
        Ok(Self {
            default: expanded.default,
            sets: expanded.sets,
            rules: expanded.rules,
            missing: expanded.missing,
            others,
        })
    }

    /// Replaces names of interfaces by names of ports: pairs of both.
    pub fn rename_ports(&mut self, names: &[(String, String)]) {
        let renamed = |element: Element| match element {
            Element::Name(name) => {
                let new = names.iter().find(|(from, _)| name.is(from));
                let new = new.and_then(|(_, port)| PortName::new(port));
                Element::Name(new.unwrap_or(name))
            }
            other => other,
        };
        for set in self
            .sets
            .iter_mut()
            .filter(|set| set.kind == SetType::Ifname)
        {
            for element in &mut set.elements {
                *element = renamed(*element);
            }
            let timeouts = std::mem::take(&mut set.element_timeouts_s).into_iter();
            let timeouts = timeouts.map(|(element, seconds)| (renamed(element), seconds));
            set.element_timeouts_s = timeouts.collect();
        }
        for rule in &mut self.rules {
            let interface = rule.port.as_ref();
            let renamed = names.iter().find(|(from, _)| Some(from) == interface);
            if let Some((_, port)) = renamed {
                rule.port = Some(port.clone());
            }
            let from = rule.from.as_ref();
            if let Some((_, port)) = names.iter().find(|(name, _)| Some(name) == from) {
                rule.from = Some(port.clone());
            }
            let dup = rule.statements.dup.as_ref();
            if let Some((_, port)) = names.iter().find(|(from, _)| Some(from) == dup) {
                rule.statements.dup = Some(port.clone());
            }
        }
    }

    /// Returns the rules as a file.
    ///
    /// # Errors
    /// The error of the serializer.
    pub fn to_toml(&self) -> Result<String, String> {
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        struct File<'a> {
            rule_default: Action,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            set: &'a [SetSetting],
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            rule: &'a [RuleSetting],
        }
        let file = File {
            rule_default: self.default,
            set: &self.sets,
            rule: &self.rules,
        };
        toml::to_string(&file).map_err(|error| error.to_string())
    }
}
