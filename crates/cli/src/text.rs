// SPDX-License-Identifier: Apache-2.0
//! Output of text, folded to the width of the terminal. A reader that ends, a closed terminal or a full disk must not end a
//! command before it has undone its changes.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::{Context, Result};
use comfy_table::Table;

/// Columns without a terminal.
const WIDTH: u16 = 80;

/// Smallest value of COLUMNS that is accepted.
const WIDTH_MIN: u16 = 20;

/// Returns the columns of the terminal on standard output. The environment variable COLUMNS takes precedence, as in `ps` and
/// `ls`. None if the output is not a terminal and COLUMNS is not set.
pub(crate) fn terminal_columns() -> Option<u16> {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| text.trim().parse().ok());
    columns
        .filter(|columns| *columns >= WIDTH_MIN)
        .or_else(|| Table::new().width())
}

/// Returns [`terminal_columns`], or 80 without a terminal.
pub(crate) fn terminal_width() -> u16 {
    terminal_columns().unwrap_or(WIDTH)
}

/// Prints a result and a newline on standard output. A reader that ends early (`| head`) is no error.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result to standard output"),
    }
}

/// Prints a text of lines for these columns, which are none without a terminal, and folds longer lines.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_folded(text: impl FnOnce(Option<u16>) -> String) -> Result<()> {
    let columns = terminal_columns();
    let text = text(columns);
    let width = columns.map_or(usize::MAX, usize::from);
    let lines = text.trim_end().lines();
    let folded: Vec<String> = lines.map(|line| fold(line, width, 0)).collect();
    print(folded.join("\n"))
}

/// Formats a loss ratio in percent with this number of decimals. A loss that they would round to 0 has an exponent, so that only no loss is
/// printed as 0.
pub(crate) fn loss_percent(ratio: f64, decimals: usize) -> String {
    let percent = ratio * 100.0;
    let text = format!("{percent:.decimals$}");
    if percent > 0.0 && text.parse::<f64>() == Ok(0.0) {
        format!("{percent:.1e}")
    } else {
        text
    }
}

/// Prints a message on standard error. An error is ignored because it could not be reported.
pub(crate) fn say(text: impl Display) {
    drop(writeln!(stderr().lock(), "{text}"));
}

/// Folds a text into lines of at most `width` columns. Lines after the first are indented. A word that is longer than a line is
/// not broken. A text that fits, and leading spaces, stay unchanged.
pub(crate) fn fold(text: &str, width: usize, indent: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let words = text.trim_start_matches(' ');
    let leading = text.len().saturating_sub(words.len());
    let mut lines = vec![" ".repeat(leading)];
    for word in words.split(' ') {
        let line = lines.last().map_or("", String::as_str);
        let used = line.chars().count();
        let is_begun = used > if lines.len() == 1 { leading } else { indent };
        let needed = used.saturating_add(1).saturating_add(word.chars().count());
        if is_begun && needed > width {
            lines.push(" ".repeat(indent) + word);
        } else if let Some(line) = lines.last_mut() {
            if is_begun {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Folds the last column of a line like [`fold`]. It begins at `column`. The columns before it stay unchanged.
pub(crate) fn fold_column(line: &str, width: usize, column: usize) -> String {
    match line.char_indices().nth(column) {
        Some((at, _)) => {
            let (columns, sentence) = line.split_at(at);
            let space = width.saturating_sub(column).max(column);
            let folded = fold(sentence, space, 0).replace('\n', &format!("\n{:column$}", ""));
            format!("{columns}{folded}")
        }
        None => line.to_owned(),
    }
}

/// Prints lines whose last column begins at `column`, folded to the width of the terminal. Lines with a command (`-> COMMAND`) stay whole,
/// so that it can be copied.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_columns(text: &str, column: usize) -> Result<()> {
    let width = terminal_columns().map_or(usize::MAX, usize::from);
    print(folded_columns(text, width, column))
}

fn folded_columns(text: &str, width: usize, column: usize) -> String {
    let line = |line: &str| match line.trim_start().starts_with("-> ") {
        true => line.to_owned(),
        false => fold_column(line, width, column),
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_folded_and_commands_stay_whole() {
        let text = "a    one two three\nlong  one\n\n     -> one two three four";
        let folded = "a    one two\n     three\nlong  one\n\n     -> one two three four";
        assert_eq!(folded_columns(text, 13, 5), folded);
        assert_eq!(folded_columns(text, usize::MAX, 5), text);
    }

    #[test]
    fn only_no_loss_is_printed_as_0() {
        assert_eq!(loss_percent(0.0, 4), "0.0000");
        assert_eq!(loss_percent(0.012_345_67, 4), "1.2346");
        assert_eq!(loss_percent(1e-6, 4), "0.0001");
        assert_eq!(loss_percent(3e-7, 4), "3.0e-5");
        assert_eq!(loss_percent(3e-7, 6), "0.000030");
        assert_eq!(loss_percent(2e-11, 6), "2.0e-9");
    }

    #[test]
    fn text_is_folded_between_words() {
        assert_eq!(fold("as it  is", 80, 4), "as it  is");
        assert_eq!(fold("one two three", 8, 2), "one two\n  three");
        assert_eq!(fold("  one two three", 9, 4), "  one two\n    three");
        assert_eq!(fold("abcdefghijkl m n o", 5, 1), "abcdefghijkl\n m n\n o");
        let folded = fold(&"word ".repeat(60), 40, 7);
        assert!(
            folded.lines().all(|line| line.chars().count() <= 40),
            "{folded}"
        );
        assert_eq!(folded.split_whitespace().count(), 60);
    }
}
