//! What this program tells of itself, on standard error: one line for each event.
//!
//! Names, paths and reasons in it are anybody's. Whatever they hold, an event stays one line and
//! gives no order to a terminal.

use std::fmt::Write as _;
use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least important level that is shown.
    pub level: LevelFilter,
    /// As JSON, one object a line.
    pub json: bool,
}

/// Starts to log to standard error, which in a server is the only stream that is not the
/// protocol's. Never in colour.
pub fn to_stderr(log: Log) {
    // The protocol library logs what it is sent, code and all, from `debug` on.
    let targets = Targets::new()
        .with_default(log.level)
        .with_target("rmcp", log.level.min(LevelFilter::WARN));
    let format = tracing_subscriber::fmt::layer().with_writer(|| OneLine).with_ansi(false);
    let layer = if log.json { format.json().boxed() } else { format.boxed() };
    let registry = tracing_subscriber::registry().with(layer.with_filter(targets));
    // A second subscriber in one process is the only way for this to fail.
    let _ = tracing::subscriber::set_global_default(registry);
}

/// Writes each event as one line to standard error.
struct OneLine;

impl Write for OneLine {
    /// Gets one event, whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = one_line(text.trim_end_matches('\n'));
        line.push('\n');
        // Nobody to tell; and whoever calls would panic if that failed.
        let _ = io::stderr().write_all(line.as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `text` without control characters and without those that make text read otherwise than it
/// stands, each shown as JSON writes it, so that JSON stays the same JSON: `\n`, `\u001b`.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{e0000}'..='\u{e007f}' => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
            plain => line.push(plain),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_gives_no_orders() {
        assert_eq!(one_line("zwölf € 🦀 \\n"), "zwölf € 🦀 \\n");
        assert_eq!(one_line("a\nb\r\t\x1b[2J\x7f\u{9b}\0"), r"a\nb\r\t\u001b[2J\u007f\u009b\u0000");
        assert_eq!(one_line("\u{202e}\u{e0041}"), r"\u202e\udb40\udc41");
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = "\u{9b}31m \u{7f} \u{202e} \u{e0041} \u{1b}\n";
        let json = serde_json::to_string(text).unwrap();
        let line = one_line(&json);
        assert!(line.is_ascii(), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
