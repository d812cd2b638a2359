//! Bytes that a program wrote → text that is safe to hand to a model, a terminal or a log.
//!
//! Pure, and total: any bytes give a `String` without control characters, in time and space
//! bounded by the room, not by the input.
//!
//! - Tab and line feed stay; `\r\n` is a line feed; a lone `\r` is shown as `\r`.
//! - Every other control character of C0, DEL and C1 is shown: NUL as `\x00`, ESC as `\x1b`.
//! - Characters that make text read otherwise than it stands (bidirectional overrides and isolates,
//!   invisible tags) are shown as `\u{202e}`.
//! - What is not UTF-8 (CESU-8 surrogates and overlong forms included) is U+FFFD.
//! - What does not fit loses its middle; a line with the true byte counts stands there.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::outcome::Stream;

/// A stream as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shaped {
    /// The text.
    pub text: String,
    /// Whether something was left out.
    pub cut: bool,
    /// Whether bytes that are not UTF-8 were replaced in what is shown.
    pub replaced: bool,
}

/// The text of one stream in about `room` bytes: all of it, or its head and its tail in half the
/// room each around one line that says how many bytes are missing and, if there is such a place, where
/// what was kept can be read, and what that is if it is not all.
#[must_use]
pub fn shape(stream: &Stream, room: usize, place: Option<&str>) -> Shaped {
    let kept = kept(stream);
    let (front, back) = match &kept {
        Some(all) => {
            if let Some(shaped) = whole(all, room) {
                return shaped;
            }
            (&all[..], &all[..])
        }
        None => (&stream.head[..], &stream.tail[..]),
    };
    let head = Piece::front(front, room / 2);
    let back = if kept.is_some() { &back[head.bytes..] } else { back };
    let tail = Piece::back(back, room / 2);
    let left_out = stream.bytes.saturating_sub((head.bytes + tail.bytes) as u64);
    let ends = stream.ends().map(|ends| format!("; {ends}")).unwrap_or_default();
    let place = place.map(|place| format!("{ends}: {place}")).unwrap_or_default();
    let line_end = if head.text.is_empty() || head.text.ends_with('\n') { "" } else { "\n" };
    Shaped {
        text: format!(
            "{}{line_end}[… {left_out} of {} bytes left out{place} …]\n{}",
            head.text, stream.bytes, tail.text
        ),
        cut: true,
        replaced: head.replaced || tail.replaced,
    }
}

/// One line or more of our own with foreign words in them (a path, an argument), made safe.
#[must_use]
pub fn harmless(text: &str) -> String {
    Rendered::new(text.as_bytes()).text
}

/// Everything that was written, if the stream has no gap.
fn kept(stream: &Stream) -> Option<Cow<'_, [u8]>> {
    match (stream.left_out(), stream.tail.is_empty()) {
        (0, true) => Some(Cow::Borrowed(&stream.head)),
        (0, false) => Some(Cow::Owned([&stream.head[..], &stream.tail[..]].concat())),
        _ => None,
    }
}

/// All of it as text, if that fits.
fn whole(bytes: &[u8], room: usize) -> Option<Shaped> {
    if bytes.len() > reach(room) {
        return None;
    }
    let rendered = Rendered::new(bytes);
    let replaced = !rendered.replaced.is_empty();
    (rendered.text.len() <= room).then_some(Shaped { text: rendered.text, cut: false, replaced })
}

/// So many bytes fill `room` bytes of text, whatever they are: nothing shrinks to less than half
/// (`\r\n`), and a character may be cut at either end.
const fn reach(room: usize) -> usize {
    room.saturating_mul(2).saturating_add(8)
}

/// One end of a stream that is too long.
struct Piece {
    text: String,
    /// How many of the stream's bytes it stands for.
    bytes: usize,
    replaced: bool,
}

impl Piece {
    /// The beginning, in at most `room` bytes of text.
    fn front(bytes: &[u8], room: usize) -> Self {
        let window = without_split_end(&bytes[..bytes.len().min(reach(room))]);
        let mut rendered = Rendered::new(window);
        let at = rendered.marks.partition_point(|mark| mark.text <= room).saturating_sub(1);
        let mark = rendered.marks[at];
        rendered.text.truncate(mark.text);
        let replaced = rendered.replaced.first().is_some_and(|first| *first < mark.text);
        Self { text: rendered.text, bytes: mark.bytes, replaced }
    }

    /// The end, in at most `room` bytes of text.
    fn back(bytes: &[u8], room: usize) -> Self {
        let window = without_split_start(&bytes[bytes.len().saturating_sub(reach(room))..]);
        let rendered = Rendered::new(window);
        let skip = rendered.text.len().saturating_sub(room);
        let mark = rendered.marks[rendered.marks.partition_point(|mark| mark.text < skip)];
        let replaced = rendered.replaced.last().is_some_and(|last| *last >= mark.text);
        Self {
            text: rendered.text[mark.text..].to_owned(),
            bytes: window.len() - mark.bytes,
            replaced,
        }
    }
}

/// A place between two characters.
#[derive(Clone, Copy)]
struct Mark {
    /// Offset in the bytes.
    bytes: usize,
    /// Offset in the text.
    text: usize,
}

/// Bytes as text, with the places where they may be cut.
struct Rendered {
    text: String,
    /// Every place between two characters, both ends included: never empty, ascending.
    marks: Vec<Mark>,
    /// Where in the text U+FFFD stands for what is not UTF-8, ascending.
    replaced: Vec<usize>,
}

impl Rendered {
    fn new(bytes: &[u8]) -> Self {
        let mut all = Self {
            text: String::with_capacity(bytes.len()),
            marks: vec![Mark { bytes: 0, text: 0 }],
            replaced: Vec::new(),
        };
        for chunk in bytes.utf8_chunks() {
            let mut characters = chunk.valid().chars().peekable();
            while let Some(character) = characters.next() {
                if character == '\r' && characters.next_if_eq(&'\n').is_some() {
                    all.push('\n', 2);
                } else {
                    all.push(character, character.len_utf8());
                }
            }
            if !chunk.invalid().is_empty() {
                all.replaced.push(all.text.len());
                all.push(char::REPLACEMENT_CHARACTER, chunk.invalid().len());
            }
        }
        all
    }

    /// Shows one character that stands for `bytes` bytes.
    fn push(&mut self, character: char, bytes: usize) {
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match character {
            '\t' | '\n' => self.text.write_char(character),
            '\r' => self.text.write_str("\\r"),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => write!(self.text, "\\x{code:02x}"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => {
                write!(self.text, "\\u{{{code:x}}}")
            }
            _ => self.text.write_char(character),
        };
        let before = self.marks.last().map_or(0, |mark| mark.bytes);
        self.marks.push(Mark { bytes: before + bytes, text: self.text.len() });
    }
}

/// Whether a byte continues a UTF-8 sequence.
const fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Without a sequence at the end that the cut left incomplete.
fn without_split_end(bytes: &[u8]) -> &[u8] {
    let Some(back) = bytes.iter().rev().take(4).position(|byte| !continues(*byte)) else {
        return bytes;
    };
    let start = bytes.len() - 1 - back;
    let needs = match bytes[start] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if back + 1 < needs { &bytes[..start] } else { bytes }
}

/// Without the rest of a sequence at the start that the cut left incomplete.
fn without_split_start(bytes: &[u8]) -> &[u8] {
    let skip = bytes.iter().take(3).take_while(|byte| continues(**byte)).count();
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8]) -> Stream {
        Stream { head: bytes.to_vec(), tail: Vec::new(), bytes: bytes.len() as u64 }
    }

    fn text(bytes: &[u8]) -> String {
        shape(&stream(bytes), 8192, None).text
    }

    fn assert_harmless(text: &str) {
        for character in text.chars() {
            assert!(!character.is_control() || matches!(character, '\t' | '\n'), "{character:?}");
        }
    }

    #[test]
    fn plain_text_stays() {
        assert_eq!(shape(&Stream::default(), 100, None), Shaped::default());
        let all = "a\tb\nzwölf €\n🦀 \\x1b";
        assert_eq!(text(all.as_bytes()), all);
    }

    #[test]
    fn escapes_and_controls_are_shown() {
        assert_eq!(text(b"\x1b]0;title\x07\x1b[2J"), "\\x1b]0;title\\x07\\x1b[2J");
        assert_eq!(text(b"a\0b\x7f"), "a\\x00b\\x7f");
        assert_eq!(text("\u{9b}31m\u{85}".as_bytes()), "\\x9b31m\\x85");
        assert_eq!(text(b"10%\r20%\r\ndone\r\r\n"), "10%\\r20%\ndone\\r\n");
        assert_eq!(text("\u{202e}evil\u{e0041}".as_bytes()), "\\u{202e}evil\\u{e0041}");
    }

    #[test]
    fn what_is_not_utf8_is_replaced_and_told() {
        let shaped = shape(&stream(b"a\xff\xfeb"), 100, None);
        assert_eq!((shaped.text.as_str(), shaped.replaced), ("a\u{fffd}\u{fffd}b", true));
        // A lone surrogate as CESU-8, an overlong slash, a raw C1 byte.
        assert_eq!(text(b"\xed\xa0\x80"), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(text(b"\xc0\xaf"), "\u{fffd}\u{fffd}");
        assert_eq!(text(b"\x9b"), "\u{fffd}");
        // A real U+FFFD is none of ours.
        assert!(!shape(&stream("\u{fffd}".as_bytes()), 100, None).replaced);
    }

    #[test]
    fn the_middle_goes_and_the_counts_are_true() {
        let shaped = shape(&stream(&b"0123456789".repeat(100)), 20, None);
        assert!(shaped.cut && !shaped.replaced);
        assert_eq!(shaped.text, "0123456789\n[… 980 of 1000 bytes left out …]\n0123456789");
    }

    #[test]
    fn a_gap_that_the_supervisor_left_counts_too() {
        let gap = Stream { head: b"head\n".to_vec(), tail: b"tail".to_vec(), bytes: 1 << 30 };
        let shaped = shape(&gap, 8192, None);
        assert_eq!(shaped.text, "head\n[… 1073741815 of 1073741824 bytes left out …]\ntail");
    }

    #[test]
    fn of_a_place_that_has_not_all_is_said_what_it_has() {
        let half = vec![b'x'; 512 << 10];
        let place = Some("/outputs/7.stdout");
        let gap = Stream { head: half.clone(), tail: half, bytes: (1 << 20) + 1 };
        let text = shape(&gap, 20, place).text;
        let words = "1048557 of 1048577 bytes left out; first and last 512 KiB: /outputs/7.stdout";
        assert_eq!(text, format!("xxxxxxxxxx\n[… {words} …]\nxxxxxxxxxx"));
        let whole = Stream { bytes: 1 << 20, ..gap };
        let text = shape(&whole, 20, place).text;
        let words = "1048556 of 1048576 bytes left out: /outputs/7.stdout";
        assert_eq!(text, format!("xxxxxxxxxx\n[… {words} …]\nxxxxxxxxxx"));
    }

    #[test]
    fn head_and_tail_without_a_gap_are_one() {
        let split = Stream {
            head: "€".as_bytes()[..1].to_vec(),
            tail: "€".as_bytes()[1..].to_vec(),
            bytes: 3,
        };
        assert_eq!(shape(&split, 100, None).text, "€");
    }

    #[test]
    fn no_cut_splits_a_character() {
        let all = "🦀€ä".repeat(1000);
        for room in 0..200 {
            let shaped = shape(&stream(all.as_bytes()), room, None);
            assert!(!shaped.replaced && shaped.cut, "room {room}");
        }
        let bytes = "€".as_bytes();
        for (head, tail) in [(1, 2), (2, 1)] {
            let gap = Stream {
                head: [b"a", &bytes[..head]].concat(),
                tail: [&bytes[3 - tail..], b"z"].concat(),
                bytes: 1000,
            };
            let shaped = shape(&gap, 100, None);
            assert_eq!(shaped.text, "a\n[… 998 of 1000 bytes left out …]\nz");
            assert!(!shaped.replaced);
        }
    }

    #[test]
    fn every_byte_is_shown_or_counted() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..2000_usize {
            let bytes: Vec<u8> = (0..round % 97)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    b"\r\n\0\x1ba\x80\xff\xe2\x82\xac\xf0\x9f\xa6\x80\xed\xa0"[(seed % 16) as usize]
                })
                .collect();
            let shaped = shape(&stream(&bytes), round % 31, None);
            assert_harmless(&shaped.text);
            let front = Piece::front(&bytes, round % 31);
            let back = Piece::back(&bytes[front.bytes..], round % 31);
            assert!(front.bytes + back.bytes <= bytes.len());
            assert!(front.text.len() <= round % 31 && back.text.len() <= round % 31);
        }
    }

    #[test]
    fn a_huge_line_costs_what_the_room_costs() {
        let huge = Stream { head: vec![0x1b; 64 << 20], tail: Vec::new(), bytes: 64 << 20 };
        let started = std::time::Instant::now();
        let shaped = shape(&huge, 8192, None);
        assert!(started.elapsed().as_millis() < 500);
        assert!(shaped.text.len() < 8192 + 64);
        assert_harmless(&shaped.text);
    }
}
