//! What server and agent say to each other; the words are told in `agent/README.md`.
//!
//! A request carries an id and a nonce, an answer repeats both: a stale or accidental line is never
//! taken for the answer. Code that runs in the agent's own process can forge one; that spoils its
//! own result and no other.

use std::fs::File;
use std::io::Read;

/// The version that both sides speak; the agent names it in its first line.
pub const VERSION: u32 = 1;

/// Longest line of an agent, bytes.
const LINE: usize = 256;

/// One request's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Counts the requests of one session.
    pub id: u64,
    nonce: String,
}

impl Tag {
    /// A name that no earlier request had and that cannot be guessed.
    ///
    /// # Errors
    /// `/dev/urandom` cannot be read.
    pub fn fresh(id: u64) -> std::io::Result<Self> {
        let mut bytes = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let nonce = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id, nonce })
    }

    /// The request: a head line, then exactly the code.
    #[must_use]
    pub fn request(&self, code: &[u8]) -> Vec<u8> {
        let mut bytes = format!("run {} {} {}\n", self.id, self.nonce, code.len()).into_bytes();
        bytes.extend_from_slice(code);
        bytes
    }
}

/// What an agent may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// It stands and waits for code.
    Ready,
    /// The code of this request has run.
    Done(Status),
    /// The code of this request ended the interpreter itself.
    End(Status),
}

/// How the code of one request ended: 0 for well, as a shell counts.
pub type Status = u8;

/// An agent said what no agent says. Its session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the session's agent said {0:?}, which is no answer to this call")]
pub struct Unexpected(String);

/// Reads an agent's lines out of the pieces in which they arrive.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole line, checked against the request that is under way.
    ///
    /// # Errors
    /// Anything but the lines that may come now.
    pub fn next(&mut self, awaited: Option<&Tag>) -> Result<Option<Line>, Unexpected> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            return if self.pending.len() > LINE { Err(self.unexpected()) } else { Ok(None) };
        };
        let line = parse(&self.pending[..end], awaited);
        if line.is_none() {
            return Err(self.unexpected());
        }
        self.pending.drain(..=end);
        Ok(line)
    }

    fn unexpected(&self) -> Unexpected {
        let shown = &self.pending[..self.pending.len().min(80)];
        Unexpected(String::from_utf8_lossy(shown).into_owned())
    }
}

fn parse(line: &[u8], awaited: Option<&Tag>) -> Option<Line> {
    let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= LINE)?;
    let words: Vec<&str> = text.split(' ').collect();
    match (words.as_slice(), awaited) {
        (["ready", version], None) if version.parse() == Ok(VERSION) => Some(Line::Ready),
        ([word, id, nonce, status], Some(tag))
            if *nonce == tag.nonce && id.parse() == Ok(tag.id) =>
        {
            let status = status.parse().ok()?;
            match *word {
                "done" => Some(Line::Done(status)),
                "end" => Some(Line::End(status)),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag() -> Tag {
        Tag { id: 7, nonce: "00ff".to_owned() }
    }

    fn line(text: &str, awaited: Option<&Tag>) -> Result<Option<Line>, Unexpected> {
        let mut lines = Lines::default();
        lines.push(text.as_bytes());
        lines.next(awaited)
    }

    #[test]
    fn a_request_is_a_head_line_and_exactly_the_code() {
        assert_eq!(tag().request(b"a\n\0\xff"), b"run 7 00ff 4\na\n\0\xff");
    }

    #[test]
    fn only_the_answer_to_this_very_request_is_taken() {
        assert_eq!(line("done 7 00ff 3\n", Some(&tag())), Ok(Some(Line::Done(3))));
        assert_eq!(line("end 7 00ff 0\n", Some(&tag())), Ok(Some(Line::End(0))));
        for forged in [
            "done 6 00ff 0\n",
            "done 7 00fe 0\n",
            "done 7 00ff 256\n",
            "done 7 00ff -1\n",
            "ready 1\n",
            "done 7 00ff\n",
            "done 7 00ff 0 0\n",
            "\n",
            "DONE 7 00ff 0\n",
            "done  7 00ff 0\n",
        ] {
            assert!(line(forged, Some(&tag())).is_err(), "{forged:?}");
        }
        assert!(line("done 7 00ff 0\n", None).is_err(), "nothing was asked");
    }

    #[test]
    fn an_agent_of_another_version_is_refused() {
        assert_eq!(line("ready 1\n", None), Ok(Some(Line::Ready)));
        assert!(line("ready 2\n", None).is_err());
    }

    #[test]
    fn lines_arrive_in_pieces_and_never_without_end() {
        let mut lines = Lines::default();
        for piece in ["do", "ne 7 00", "ff 0"] {
            lines.push(piece.as_bytes());
            assert_eq!(lines.next(Some(&tag())), Ok(None));
        }
        lines.push(b"\n");
        assert_eq!(lines.next(Some(&tag())), Ok(Some(Line::Done(0))));
        lines.push(&[b'x'; LINE + 1]);
        assert!(lines.next(Some(&tag())).is_err());
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(Tag::fresh(1).expect("random"), Tag::fresh(1).expect("random"));
    }
}
