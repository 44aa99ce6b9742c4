// SPDX-License-Identifier: Apache-2.0
//! The full-screen view of the progress of each search.

use std::io::{Stderr, stderr};
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph};
use ratatui::{Frame, Terminal};

use super::state::{Interval, State, latency_us, within};
use crate::text::loss_percent;

/// The alternate screen of the terminal, left on drop. Keys are not captured, so Ctrl-C still stops the study.
pub(super) struct View {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl View {
    pub(super) fn open() -> Result<Self> {
        execute!(stderr(), EnterAlternateScreen)
            .context("cannot use the terminal for --progress")?;
        // From here on, the drop leaves the alternate screen.
        let terminal = Terminal::new(CrosstermBackend::new(stderr()));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                leave();
                Err(error).context("cannot draw on the terminal for --progress")
            }
        }
    }

    /// Draws the view. The study continues if the terminal is gone.
    pub(super) fn draw(&mut self, state: &State) {
        let elapsed = state.elapsed();
        if let Err(error) = self.terminal.draw(|frame| render(frame, state, elapsed)) {
            tracing::debug!("cannot draw on the terminal: {error}");
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        leave();
    }
}

fn leave() {
    // If this fails, the terminal is gone, so the error is ignored.
    let _ = execute!(stderr(), LeaveAlternateScreen);
}

/// Draws the complete view.
pub(super) fn render(frame: &mut Frame<'_>, state: &State, elapsed: Duration) {
    let intervals = u16::try_from(state.intervals.len()).unwrap_or(u16::MAX);
    let [head, now, search, done, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(4),
        Constraint::Length(intervals.saturating_mul(2).saturating_add(2)),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(state), head);
    frame.render_widget(last(state), now);
    bounds(frame, search, state);
    let lines = state
        .done
        .iter()
        .rev()
        .map(|line| Line::from(line.as_str()));
    let through = Paragraph::new(lines.collect::<Vec<_>>());
    frame.render_widget(through.block(Block::bordered().title("finished")), done);
    frame.render_widget(footer(state, elapsed), foot);
}

fn bold(text: &str) -> Span<'_> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn header(state: &State) -> Paragraph<'_> {
    let place = format!(
        "case {}, round {} of {}, frames {}, {}",
        state.case,
        state.round.saturating_add(1),
        state.rounds,
        state.frame_size,
        state.step
    );
    Paragraph::new(vec![Line::from(bold(&state.title)), Line::from(place)])
}

fn last(state: &State) -> Paragraph<'_> {
    let us = |ns: Option<u64>, own_ns: Option<u64>| {
        ns.map_or_else(|| "–".to_owned(), |ns| latency_us(ns, own_ns))
    };
    let lines = match (&state.last_action, &state.last) {
        (Some(action), _) => vec![Line::from(action.as_str())],
        (None, Some(last)) => vec![
            Line::from(format!(
                "rate {:.3} Mpps   loss {} %{}",
                last.rate_pps / 1e6,
                loss_percent(last.loss_ratio, 4),
                if last.is_valid { "" } else { "   INVALID" }
            )),
            Line::from(format!(
                "latency p50 {}   p99 {}",
                us(last.p50_ns, last.own_ns.map(|own| own[0])),
                us(last.p99_ns, last.own_ns.map(|own| own[1]))
            )),
        ],
        (None, None) => vec![Line::from("setting up")],
    };
    Paragraph::new(lines).block(Block::bordered().title("last trial"))
}

/// Draws for each goal the interval as text and a bar up to the highest rate within the loss ratio.
fn bounds(frame: &mut Frame<'_>, area: ratatui::layout::Rect, state: &State) {
    let block = Block::bordered().title("search");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical(state.intervals.iter().map(|_| Constraint::Length(2))).split(inner);
    for (interval, row) in state.intervals.iter().zip(rows.iter()) {
        let [words, bar] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(*row);
        let text = format!(
            "{}, loss up to {} %: {}",
            interval.goal,
            interval.loss_ratio * 100.0,
            within(interval)
        );
        frame.render_widget(Paragraph::new(text), words);
        frame.render_widget(
            Gauge::default()
                .ratio(held_part(interval, state))
                .label(width(interval)),
            bar,
        );
    }
}

/// Returns the highest rate within the loss ratio as a fraction of the known end of the range.
fn held_part(interval: &Interval, state: &State) -> f64 {
    let end = state
        .max_rate_pps
        .or(interval.lost_pps)
        .or(interval.held_pps);
    match (interval.held_pps, end) {
        (Some(held), Some(end)) if end > 0.0 => (held / end).clamp(0.0, 1.0),
        _ => 0.0,
    }
}

/// Formats the width of the interval.
fn width(interval: &Interval) -> String {
    match (interval.held_pps, interval.lost_pps) {
        (Some(held), Some(lost)) if lost > held => {
            format!(" {:.2} % apart ", (lost - held) / lost * 100.0)
        }
        _ => String::new(),
    }
}

fn footer(state: &State, elapsed: Duration) -> Paragraph<'_> {
    let time = |time: Duration| {
        let seconds = time.as_secs();
        format!(
            "{}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    };
    let left = state.left(elapsed).map_or_else(
        || "time left unknown".to_owned(),
        |left| format!("about {} left if no trial is invalid", time(left)),
    );
    Paragraph::new(format!(
        "{} of about {} trials, {} invalid, {} elapsed, {left}",
        state.trials,
        state.estimate.trials,
        state.invalid,
        time(elapsed)
    ))
}
