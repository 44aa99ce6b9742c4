// SPDX-License-Identifier: Apache-2.0
//! Charts as PNG. A headless Chromium renders them, because CSS styles the charts. It is driven through a pipe (Chrome DevTools Protocol,
//! `--remote-debugging-pipe`): messages are JSON, and each ends with a zero octet.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::unistd::geteuid;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_base::{Deadline, find_program};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::exit::MissingPrerequisite;

/// Names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const FLAGS: [&str; 8] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];
/// The browser reads commands from descriptor 3 and writes to descriptor 4.
const PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"#;
/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Largest message of the browser, octets.
const MESSAGE_MAX: u64 = 64 << 20;
/// Pixels of a picture for each unit of the chart.
const SCALE: u32 = 2;
/// Largest width and height of a chart.
const SIZE_MAX: f64 = 8192.0;

/// Returns the path of Chromium.
///
/// # Errors
/// [`MissingPrerequisite`]: it is not installed.
pub(super) fn browser() -> Result<PathBuf> {
    let found = NAMES.iter().find_map(|name| find_program(name));
    found.ok_or_else(|| {
        let message = "--png: chromium is not in PATH (install it: apt install chromium)";
        MissingPrerequisite(message.to_owned()).into()
    })
}

/// A running browser.
// Fields are dropped in this order: the browser ends when its input ends.
pub(super) struct Browser {
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Number of the last command.
    number: u64,
    session: Option<String>,
    has_loaded: bool,
    pictures: u32,
    _child: Supervised,
    directory: TempDir,
}

/// Sends the messages of the browser on, until it ends.
fn read(output: ChildStdout, sender: &Sender<Value>) {
    let mut output = BufReader::new(output);
    loop {
        let mut octets = Vec::new();
        match output.by_ref().take(MESSAGE_MAX).read_until(0, &mut octets) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
        if octets.pop() != Some(0) {
            return;
        }
        let Ok(message) = serde_json::from_slice(&octets) else {
            return;
        };
        if sender.send(message).is_err() {
            return;
        }
    }
}

/// Returns a text of an answer.
fn text(answer: &Value, key: &str) -> Result<String> {
    let text = answer.get(key).and_then(Value::as_str);
    let text = text.with_context(|| format!("an answer of Chromium has no {key}"))?;
    Ok(text.to_owned())
}

/// Returns width and height of a chart, from its `viewBox`.
fn size(svg: &str) -> Option<(u32, u32)> {
    let (_, from) = svg.split_once("viewBox=\"0 0 ")?;
    let (text, _) = from.split_once('"')?;
    let (width, height) = text.split_once(' ')?;
    let whole = |text: &str| {
        let value = text.parse::<f64>().ok();
        let value = value.filter(|value| (1.0..=SIZE_MAX).contains(value))?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the range is checked above"
        )]
        let whole = value.ceil() as u32;
        Some(whole)
    };
    Some((whole(width)?, whole(height)?))
}

impl Browser {
    /// Starts the browser.
    ///
    /// # Errors
    /// It does not start, or does not answer.
    pub(super) fn start(program: &Path) -> Result<Self> {
        let directory = tempfile::tempdir().context("a directory for Chromium")?;
        let profile = directory.path().join("profile");
        let mut command = Command::new("bash")
            .args(["-c", PIPES, "chromium"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()));
        if geteuid().is_root() {
            // Chromium's sandbox refuses root. The charts are our own.
            command = command.arg("--no-sandbox");
        }
        let command = command.arg("about:blank");
        let mut child = command
            .start(Streams::Pipes)
            .with_context(|| format!("starting {}", program.display()))?;
        let pipes = child.take_stdin().zip(child.take_stdout());
        let (input, output) = pipes.context("Chromium has no pipes")?;
        let (sender, messages) = channel();
        // The thread ends with the browser.
        thread::Builder::new()
            .name("qw-browser".to_owned())
            .spawn(move || read(output, &sender))
            .context("a thread for the answers of Chromium")?;
        let mut browser = Self {
            input,
            messages,
            number: 0,
            session: None,
            has_loaded: false,
            pictures: 0,
            _child: child,
            directory,
        };
        browser.attach()?;
        Ok(browser)
    }

    /// Opens a page.
    fn attach(&mut self) -> Result<()> {
        let target = self.ask("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let target = text(&target, "targetId")?;
        let attached = self.ask(
            "Target.attachToTarget",
            &json!({ "targetId": target, "flatten": true }),
        )?;
        self.session = Some(text(&attached, "sessionId")?);
        self.ask("Page.enable", &json!({}))?;
        Ok(())
    }

    /// Returns the next message.
    fn message(&mut self, deadline: Deadline) -> Result<Value> {
        let message = self.messages.recv_timeout(deadline.remaining());
        let message = message.map_err(|_| {
            anyhow!(
                "Chromium ended, or did not answer within {} s",
                ANSWER.as_secs()
            )
        })?;
        let method = message.get("method").and_then(Value::as_str);
        self.has_loaded |= method == Some("Page.loadEventFired");
        Ok(message)
    }

    /// Sends a command; returns its result.
    fn ask(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.number = self.number.wrapping_add(1);
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if let (Some(session), Some(fields)) = (&self.session, command.as_object_mut()) {
            fields.insert("sessionId".to_owned(), json!(session));
        }
        let mut octets = serde_json::to_vec(&command)?;
        octets.push(0);
        let sent = self.input.write_all(&octets);
        sent.with_context(|| format!("sending {method} to Chromium"))?;
        let deadline = Deadline::after(ANSWER);
        loop {
            let message = self.message(deadline)?;
            if message.get("id").and_then(Value::as_u64) != Some(self.number) {
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("Chromium refused {method}: {error}");
            }
            return Ok(message.get("result").cloned().unwrap_or_default());
        }
    }

    /// Returns a chart as PNG, with two pixels for each unit of the chart.
    ///
    /// # Errors
    /// The chart has no size, or the browser fails.
    pub(super) fn render(&mut self, svg: &str) -> Result<Vec<u8>> {
        let (width, height) = size(svg).context("a chart has no size")?;
        self.pictures = self.pictures.wrapping_add(1);
        let name = format!("{}.svg", self.pictures);
        let source = self.directory.path().join(name);
        fs::write(&source, svg).context("writing a chart for Chromium")?;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", &metrics)?;
        self.has_loaded = false;
        let url = format!("file://{}", source.display());
        let answer = self.ask("Page.navigate", &json!({ "url": url }))?;
        if let Some(error) = answer.get("errorText") {
            bail!("Chromium does not show {}: {error}", source.display());
        }
        let deadline = Deadline::after(ANSWER);
        while !self.has_loaded {
            self.message(deadline)?;
        }
        let picture = self.ask("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let octets = STANDARD.decode(text(&picture, "data")?);
        octets.context("a picture of Chromium is not base64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_chart_is_that_of_its_view() {
        let svg =
            "<svg class=\"chart\" viewBox=\"0 0 860 300.5\"><svg viewBox=\"0 0 1 1\"></svg></svg>";
        assert_eq!(size(svg), Some((860, 301)));
        for wrong in [
            "",
            "<svg viewBox=\"0 0 860\">",
            "<svg viewBox=\"0 0 860 NaN\">",
            "<svg viewBox=\"0 0 0 5\">",
            "<svg viewBox=\"0 0 5 1e9\">",
        ] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
