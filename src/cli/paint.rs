//! Words on a terminal: colours where they are seen, columns everywhere.

use std::fmt::{self, Display};
use std::io::IsTerminal;

/// Colours, or none: standard output is no terminal, or `NO_COLOR` is set (no-color.org).
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(bool);

impl Paint {
    pub(super) fn stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(std::io::stdout().is_terminal() && !unwanted)
    }

    pub(super) fn bold(self, text: impl Display) -> String {
        self.with("1", text)
    }

    pub(super) fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }

    pub(super) fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    pub(super) fn bad(self, text: impl Display) -> String {
        self.with("1;31", text)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Bytes as people write them, exactly: `512M`, `1000`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
            if bytes > 0 && bytes.trailing_zeros() >= shift {
                return f.pad(&format!("{}{unit}", bytes >> shift));
            }
        }
        f.pad(&bytes.to_string())
    }
}

/// Rows of cells, each column as wide as its widest cell; the last one is not padded.
pub(super) fn columns<const N: usize>(rows: &[[String; N]], indent: &str) -> String {
    // A name may hold a line feed; a row is one line.
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| cell.replace('\n', "\\n"))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        let shown = [0, 1000, 1024, 512 << 20, (1 << 30) + 1].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0", "1000", "1K", "512M", "1073741825"]);
    }

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let rows = [["a", "b", ""], ["long", "c", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows, " "), " a     b\n long  c  d\n");
    }
}
