//! What a payload writes on its way to the caller's terminal.
//!
//! A terminal takes orders from what it is shown: set the clipboard, set the window's title and
//! type it back, print, hide text (CVE-2003-0063 and its family). A [`Filter`] lets through what
//! is text, or what is text and drawing. It works on a stream in pieces, cut anywhere.

use std::io::Write as _;

/// Takes orders to the terminal out of a stream.
#[derive(Debug)]
pub struct Filter(Kind);

#[derive(Debug)]
enum Kind {
    /// The beginning of a character whose end has not come yet.
    Text(Vec<u8>),
    Drawing(Parser),
}

impl Filter {
    /// For a program that believes to write to a pipe: every control character but tab, line feed
    /// and carriage return is shown (`\x1b`), and so is what makes text read otherwise than it
    /// stands; what is not UTF-8 is U+FFFD.
    #[must_use]
    pub const fn text() -> Self {
        Self(Kind::Text(Vec::new()))
    }

    /// For a program that has a terminal of its own: colours, cursor and screen pass, and so do
    /// titles. Taken out are clipboard, links and other orders to the terminal emulator, reports on
    /// its window, printing, and every string of unknown meaning.
    #[must_use]
    pub const fn drawing() -> Self {
        Self(Kind::Drawing(Parser { state: State::Ground, held: Vec::new() }))
    }

    /// What is left of the next piece.
    #[must_use]
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        match &mut self.0 {
            Kind::Text(begun) => {
                begun.extend_from_slice(bytes);
                *begun = show_all(begun, &mut out).to_vec();
            }
            Kind::Drawing(parser) => bytes.iter().for_each(|byte| parser.take(*byte, &mut out)),
        }
        out
    }

    /// The stream has ended: what is left of what was begun.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        match &mut self.0 {
            Kind::Text(begun) if !begun.is_empty() => {
                begun.clear();
                "\u{fffd}".into()
            }
            Kind::Text(_) | Kind::Drawing(_) => Vec::new(),
        }
    }
}

/// Shows all whole characters; returns the beginning of one at the end.
fn show_all<'b>(mut bytes: &'b [u8], out: &mut Vec<u8>) -> &'b [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => {
                text.chars().for_each(|character| show(character, out));
                return &[];
            }
            Err(error) => error,
        };
        let (good, bad) = bytes.split_at(error.valid_up_to());
        String::from_utf8_lossy(good).chars().for_each(|character| show(character, out));
        match error.error_len() {
            None => return bad,
            Some(length) => {
                show(char::REPLACEMENT_CHARACTER, out);
                bytes = &bad[length..];
            }
        }
    }
}

fn show(character: char, out: &mut Vec<u8>) {
    let code = u32::from(character);
    // Writing to a vector cannot fail.
    let _ = match character {
        '\t' | '\n' | '\r' => write!(out, "{character}"),
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => write!(out, "\\x{code:02x}"),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => {
            write!(out, "\\u{{{code:x}}}")
        }
        _ => write!(out, "{character}"),
    };
}

/// A terminal's parser as far as it takes to know where a sequence ends. After the state machine
/// that all terminals follow (vt100.net/emu/dec_ansi_parser), for a terminal that reads UTF-8.
///
/// What it takes out it takes out from the first byte, so the terminal never waits for the end of
/// something whose beginning it saw.
#[derive(Debug)]
struct Parser {
    state: State,
    /// The sequence so far; given out when it has ended and may pass.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    /// After 0xC2, which begins the C1 controls in UTF-8.
    Lead,
    Escape,
    /// `ESC [`.
    Control,
    /// `ESC ]`, and the like, whose content is never shown.
    String {
        /// `ESC ]`: may pass if it is a title or a colour.
        system: bool,
    },
    /// An escape in a string: its end, if a backslash follows.
    StringEscape {
        system: bool,
    },
    /// After 0xC2 in a string.
    StringLead {
        system: bool,
    },
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const DELETE: u8 = 0x7f;
/// Cancel and substitute: they end any sequence.
const ABORT: [u8; 2] = [0x18, 0x1a];
/// Longest sequence that is given out.
const HELD_MAX: usize = 1024;

impl Parser {
    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.state {
            State::Ground => self.ground(byte, out),
            State::Lead => self.lead(byte, out),
            State::Escape => self.escape(byte, out),
            State::Control => self.control(byte, out),
            State::String { system } => self.string(byte, system, out),
            State::StringEscape { system } => {
                if byte == b'\\' {
                    self.end_string(system, out);
                } else {
                    // Not its end, but the end of it all the same.
                    self.held.clear();
                    self.state = State::Escape;
                    self.take(byte, out);
                }
            }
            State::StringLead { system } if byte == 0x9c => self.end_string(system, out),
            State::StringLead { system } => {
                self.hold(0xc2);
                self.state = State::String { system };
                self.take(byte, out);
            }
        }
    }

    fn ground(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => self.state = State::Escape,
            0xc2 => self.state = State::Lead,
            _ => out.push(byte),
        }
    }

    fn lead(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = State::Ground;
        match byte {
            // A C1 control is its 7-bit form with another spelling.
            0x80..=0x9f => {
                self.state = State::Escape;
                self.escape(byte - 0x40, out);
            }
            0xa0..=0xbf => out.extend([0xc2, byte]),
            _ => {
                out.push(0xc2);
                self.ground(byte, out);
            }
        }
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE | DELETE => {}
            _ if ABORT.contains(&byte) => self.state = State::Ground,
            // Terminals obey a control character in a sequence and go on with the sequence.
            0..=0x1f => out.push(byte),
            b'[' => self.state = State::Control,
            b']' => self.state = State::String { system: true },
            b'P' | b'X' | b'^' | b'_' => self.state = State::String { system: false },
            // The end of a string that was taken out.
            b'\\' => self.state = State::Ground,
            0x80.. => {
                self.state = State::Ground;
                self.ground(byte, out);
            }
            _ => {
                self.state = State::Ground;
                out.extend([ESCAPE, byte]);
            }
        }
    }

    fn control(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => self.restart(State::Escape),
            DELETE => {}
            _ if ABORT.contains(&byte) => self.restart(State::Ground),
            0..=0x1f => out.push(byte),
            0x20..=0x3f => self.hold(byte),
            0x80.. => {
                self.restart(State::Ground);
                self.ground(byte, out);
            }
            // `t` moves, resizes and reports on the window; `i` prints.
            b't' | b'i' => self.restart(State::Ground),
            _ => {
                if self.held.len() < HELD_MAX {
                    out.extend([ESCAPE, b'[']);
                    out.append(&mut self.held);
                    out.push(byte);
                }
                self.restart(State::Ground);
            }
        }
    }

    fn string(&mut self, byte: u8, system: bool, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => self.state = State::StringEscape { system },
            0xc2 => self.state = State::StringLead { system },
            BELL => self.end_string(system, out),
            _ if ABORT.contains(&byte) => self.restart(State::Ground),
            0..=0x1f => {}
            _ => self.hold(byte),
        }
    }

    fn end_string(&mut self, system: bool, out: &mut Vec<u8>) {
        let number = self.held.split(|byte| *byte == b';').next().unwrap_or_default();
        // Titles; colours and back to the default ones.
        let passes = system
            && self.held.len() < HELD_MAX
            && [&b"0"[..], b"1", b"2", b"4", b"10", b"11", b"12", b"104", b"110", b"111", b"112"]
                .contains(&number);
        if passes {
            out.extend([ESCAPE, b']']);
            out.append(&mut self.held);
            out.push(BELL);
        }
        self.restart(State::Ground);
    }

    fn restart(&mut self, state: State) {
        self.held.clear();
        self.state = state;
    }

    fn hold(&mut self, byte: u8) {
        if self.held.len() < HELD_MAX {
            self.held.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a stream is cut, the result is the same.
    fn passed(new: fn() -> Filter, bytes: &[u8]) -> String {
        let whole = {
            let mut filter = new();
            [filter.pass(bytes), filter.finish()].concat()
        };
        for piece in 1..bytes.len() {
            let mut filter = new();
            let mut parts: Vec<u8> =
                bytes.chunks(piece).flat_map(|part| filter.pass(part)).collect();
            parts.extend(filter.finish());
            assert_eq!(parts, whole, "cut at every {piece}");
        }
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[test]
    fn text_shows_every_control_character() {
        for (bytes, shown) in [
            (&b"a\tb\r\nc"[..], "a\tb\r\nc"),
            (b"\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
            ("\u{9b}6n \u{202e}€".as_bytes(), "\\x9b6n \\u{202e}€"),
            (b"\xff\x9b\xe2\x82", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(passed(Filter::text, bytes), shown);
        }
    }

    #[test]
    fn drawing_and_titles_pass() {
        for bytes in [
            &b"\x1b[31mred\x1b[0m \x1b[2J\x1b[1;1H\x1b[?1049h\x1b[6n\x1b[>4;2m"[..],
            b"\x1b(B\x1b7\x1b8\x1b=\x1bc",
            b"\x1b]0;title\x07\x1b]11;?\x07",
            "grüße \u{a0} €🦀".as_bytes(),
        ] {
            assert_eq!(passed(Filter::drawing, bytes).as_bytes(), bytes);
        }
        assert_eq!(passed(Filter::drawing, b"\x1b]2;t\x1b\\x"), "\x1b]2;t\x07x");
        assert_eq!(passed(Filter::drawing, "\u{9b}1m".as_bytes()), "\x1b[1m");
    }

    #[test]
    fn orders_to_the_terminal_emulator_are_taken_out() {
        for bytes in [
            &b"a\x1b]52;c;aGk=\x07b"[..],
            b"a\x1b]52;c;aGk=\x1b\\b",
            b"a\x1b\n]52;c;aGk=\x07b",
            b"a\x1b\x1b]52;c;x\x07b",
            b"a\x1b]8;;http://evil\x07b",
            b"a\x1bP$q\"p\x1b\\b",
            b"a\x1b_Gf=100;AAAA\x1b\\b",
            b"a\x1b[21tb",
            b"a\x1b[2\n1tb",
            b"a\x1b[5ib",
            "a\u{9d}52;c;aGk=\u{9c}b".as_bytes(),
            b"a\x1b]52;\x1b[21tb",
        ] {
            assert_eq!(passed(Filter::drawing, bytes).replace('\n', ""), "ab", "{bytes:?}");
        }
    }

    #[test]
    fn memory_stays_flat_whatever_comes() {
        let mut filter = Filter::drawing();
        assert!(filter.pass(b"\x1b]0;").is_empty());
        for _ in 0..100 {
            assert!(filter.pass(&[b'x'; 64 << 10]).is_empty());
        }
        assert_eq!(filter.pass(b"\x07ok"), b"ok");
        let Kind::Drawing(parser) = &filter.0 else { panic!("drawing") };
        assert!(parser.held.capacity() <= 2 * HELD_MAX);
    }
}
