// SPDX-License-Identifier: Apache-2.0
//! Separate file of filter rules.

use std::path::Path;
use std::sync::Arc;

use quietwire_base::locate::Lines;
use serde::Deserialize;
use toml::Spanned;

use super::{Action, MalformedAction, RuleSetting, SetSetting};
use crate::config::location::{Located, Location, read_text, wrong};
use crate::config::settings::Settings;
use crate::error::SwitchError;

/// The file format: `[[rule]]`, `[[set]]`, `rule-default` and `rule-malformed`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    rule_default: Option<Action>,
    rule_malformed: Option<MalformedAction>,
    #[serde(default)]
    rule: Vec<Spanned<RuleSetting>>,
    #[serde(default)]
    set: Vec<Spanned<SetSetting>>,
}

/// Contents of a file of filter rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// The rules, each with its line.
    pub rules: Vec<Located<RuleSetting>>,
    /// The sets, each with its line.
    pub sets: Vec<Located<SetSetting>>,
    /// Default action for frames that match no rule, if set.
    pub default: Option<Action>,
    /// Action for malformed frames, if set.
    pub malformed: Option<MalformedAction>,
}

impl RuleFile {
    /// Reads a file of rules.
    ///
    /// # Errors
    /// [`SwitchError::Unreadable`]; [`SwitchError::Config`] with file, line and key.
    pub fn read(path: &Path) -> Result<Self, SwitchError> {
        Self::parse(path, &read_text(path)?)
    }

    /// Parses the text of a file of filter rules. `path` appears in messages.
    ///
    /// # Errors
    /// [`SwitchError::Config`] with file, line and key.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SwitchError> {
        let file: File = toml::from_str(text).map_err(|error| wrong(path, text, &error))?;
        let lines = Lines::of(text);
        let path: Arc<Path> = path.into();
        let location = |at: usize, key: &'static str| Location::File {
            path: Arc::clone(&path),
            line: lines.line(at),
            key,
        };
        let rules = file.rule.into_iter().map(|rule| Located {
            location: location(rule.span().start, "rule"),
            value: rule.into_inner(),
        });
        let sets = file.set.into_iter().map(|set| Located {
            location: location(set.span().start, "set"),
            value: set.into_inner(),
        });
        Ok(Self {
            rules: rules.collect(),
            sets: sets.collect(),
            default: file.rule_default,
            malformed: file.rule_malformed,
        })
    }

    /// Converts to [`Settings`] without any other setting.
    #[must_use]
    pub fn settings(self) -> Settings {
        Settings {
            rules: Some(self.rules.into_iter().map(Located::shared).collect()),
            sets: Some(self.sets.into_iter().map(Located::shared).collect()),
            rule_default: self.default,
            rule_malformed: self.malformed,
            ..Settings::default()
        }
    }
}
