//! Words of sandboxed programs: an agent's answers, and what is shown of output.

use std::sync::LazyLock;

use super::dice::Dice;
use crate::mcp::text::{harmless, shape};
use crate::outcome::Stream;
use crate::runner::Filter;
use crate::session::protocol::{Line, Lines, Tag};

/// The tag of the request under way, and its nonce.
static TAG: LazyLock<(Tag, String)> = LazyLock::new(|| {
    let tag = Tag::fresh(7).expect("/dev/urandom");
    let head = String::from_utf8(tag.request(b"")).expect("text");
    let nonce = head.split(' ').nth(2).expect("run ID NONCE LENGTH").to_owned();
    (tag, nonce)
});

/// Any bytes from an agent, in any pieces. `0xff` stands for the nonce, which code can know.
pub fn agent_frame(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let (tag, nonce) = &*TAG;
    let said: Vec<u8> = rest
        .iter()
        .flat_map(|byte| if *byte == 0xff { nonce.as_bytes().to_vec() } else { vec![*byte] })
        .collect();
    for awaited in [None, Some(tag)] {
        let whole = heard(&said, said.len().max(1), awaited);
        let pieces = heard(&said, usize::from(*first % 64) + 1, awaited);
        assert_eq!(whole, pieces, "how it arrives makes no difference");
        for line in &whole {
            match line {
                Line::Ready => {
                    assert!(awaited.is_none(), "nobody is ready in the middle of a call");
                }
                Line::Done(_) | Line::End(_) => {
                    assert!(awaited.is_some(), "an answer that nobody asked for was taken");
                    assert!(
                        contains(&said, nonce.as_bytes()),
                        "an answer without the nonce was taken"
                    );
                }
            }
        }
    }
}

/// The lines up to the first that is none.
fn heard(said: &[u8], size: usize, awaited: Option<&Tag>) -> Vec<Line> {
    let mut lines = Lines::default();
    let mut heard = Vec::new();
    for piece in said.chunks(size) {
        lines.push(piece);
        loop {
            match lines.next(awaited) {
                Ok(Some(line)) => heard.push(line),
                Ok(None) => break,
                Err(unexpected) => {
                    assert!(unexpected.to_string().len() < 1000, "a complaint is no flood");
                    return heard;
                }
            }
        }
    }
    heard
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Any bytes as output, with and without a gap in the middle, in any room.
pub fn output_shaper(bytes: &[u8]) {
    let mut dice = Dice::new(bytes);
    let room = usize::from(dice.byte()) * usize::from(dice.byte() % 40);
    let gap = u64::from(dice.byte() % 3) * 1_000_003;
    let split = usize::from(dice.byte());
    let output = &bytes[bytes.len().min(4)..];
    let (head, tail) = output.split_at(output.len() * split / 256);
    let stream = match gap {
        0 => Stream { head: output.to_vec(), tail: Vec::new(), bytes: output.len() as u64 },
        _ => Stream { head: head.to_vec(), tail: tail.to_vec(), bytes: output.len() as u64 + gap },
    };
    let place = (dice.byte() % 2 == 1).then_some("/outputs/1.stdout");
    let shaped = shape(&stream, room, place);
    assert!(shaped.text.len() <= room + 100, "{} bytes in a room of {room}", shaped.text.len());
    plain(&shaped.text);
    assert!(shaped.cut || gap == 0, "what is missing is told");
    if !shaped.cut && !shaped.replaced {
        assert_eq!(shaped.text, harmless(&String::from_utf8_lossy(output)), "all of it is shown");
    }
    let again = harmless(&shaped.text);
    assert_eq!(again, shaped.text, "what is harmless stays as it is");
    for mut filter in [Filter::text(), Filter::drawing()] {
        let mut passed: Vec<u8> =
            output.chunks(split + 1).flat_map(|piece| filter.pass(piece)).collect();
        passed.extend(filter.finish());
        assert!(passed.len() <= 16 * output.len() + 64, "a filter is no flood");
    }
}

/// Nothing that a terminal or a reader would take for more than a character.
fn plain(text: &str) {
    let odd = text.chars().find(|c| {
        (c.is_control() && !"\n\t".contains(*c))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    });
    assert_eq!(odd, None, "{text:?}");
}
