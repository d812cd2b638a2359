//! An [`Outcome`] or a [`RunError`] → what the model reads and what a program reads.
//!
//! Whatever matters is in the text, because some clients drop `isError` and all drop the text
//! where `structuredContent` stands. Typed facts are in `_meta`, which costs the model nothing.

use serde_json::{Map, Value, json};

use crate::outcome::{
    Ending, Files, INLINE, Image, LeftOut, Order, Outcome, SessionNote, Source, Stream, Strength,
    Usage,
};
use crate::plan::Wall;
use crate::runner::{Fault, RunError};

use super::text::{Shaped, harmless, shape};

/// The `_meta` key of a run's facts: `{ending, usage, bytes, truncated, enforced}`.
const OUTCOME: &str = "nix-sandbox-mcp/outcome";

/// The `_meta` key of what the environment was made of, where Nix made it: `{storePath,
/// closureSha256, closurePaths, flake}`.
const RECEIPT: &str = "nix-sandbox-mcp/environment";

/// The `_meta` key that says whose fault it is that nothing was run: `caller`, `host`, `internal`.
const FAULT: &str = "nix-sandbox-mcp/fault";

/// The answer to one call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// What the model reads; no control characters but tab and line feed.
    pub(super) text: String,
    /// Whether anything but exit 0 happened.
    pub(super) is_error: bool,
    /// What a program reads.
    pub(super) meta: Map<String, Value>,
    /// Pictures, after the text.
    pub(super) images: Vec<Image>,
    /// All of it once more, for those who asked for it; see [`super::tool::output_schema`].
    pub(super) structured: Map<String, Value>,
}

impl Answer {
    /// The same with what the environment was made of.
    pub(super) fn with_receipt(mut self, receipt: Option<Value>) -> Self {
        self.meta.extend(receipt.map(|receipt| (RECEIPT.to_owned(), receipt)));
        self
    }

    /// The arguments were wrong; the sentence says what would be right.
    pub(super) fn advice(sentence: &str) -> Self {
        Self::refusal(Fault::Caller, sentence)
    }

    /// A defect of this server, in one sentence.
    pub(super) fn defect(sentence: &str) -> Self {
        Self::refusal(Fault::Ours, sentence)
    }

    /// Nothing was run. A model must not take this for a failure of its code, unless it is the
    /// caller's.
    fn refusal(fault: Fault, sentence: &str) -> Self {
        let sentence = harmless(sentence);
        let (fault, text) = match fault {
            Fault::Caller => ("caller", sentence),
            Fault::Host => ("host", format!("sandbox error (host): {sentence}")),
            Fault::Ours => ("internal", format!("sandbox error (internal): {sentence}")),
        };
        let meta = Map::from_iter([(FAULT.to_owned(), json!(fault))]);
        let structured =
            Map::from_iter([("error".to_owned(), json!(text)), ("fault".to_owned(), json!(fault))]);
        Self { text, is_error: true, meta, images: Vec::new(), structured }
    }
}

impl From<&RunError> for Answer {
    fn from(error: &RunError) -> Self {
        Self::refusal(error.fault(), &error.to_string())
    }
}

impl From<&Outcome> for Answer {
    fn from(outcome: &Outcome) -> Self {
        let Files { stdout: out_at, stderr: err_at, images, left_out, looked_at } = &outcome.files;
        let stdout = shape(&outcome.stdout, room(&outcome.stderr), out_at.as_deref());
        let stderr = shape(&outcome.stderr, room(&outcome.stdout), err_at.as_deref());
        let mut facts = Map::from_iter([
            ("ending".to_owned(), json!(outcome.ending)),
            ("usage".to_owned(), json!(outcome.usage)),
            (
                "bytes".to_owned(),
                json!({"stdout": outcome.stdout.bytes, "stderr": outcome.stderr.bytes}),
            ),
            ("truncated".to_owned(), json!(stdout.cut || stderr.cut)),
        ]);
        if !images.is_empty() || !left_out.is_empty() || looked_at.is_some() {
            facts.insert("images".to_owned(), pictures(&outcome.files));
        }
        let mut late = String::new();
        if let Some(note) = &outcome.session {
            let SessionNote { name, kept, restarted, late: stream } = note;
            let session = json!({"name": name, "kept": kept, "restarted": restarted});
            facts.insert("session".to_owned(), session);
            late = shape(stream, INLINE / 2, None).text;
        }
        let trailer = trailer(outcome, stdout.replaced || stderr.replaced);
        let mut structured = facts.clone();
        structured.extend(
            [
                ("stdout", &stdout.text),
                ("stderr", &stderr.text),
                ("background", &late),
                ("trailer", &trailer),
            ]
            .map(|(name, text)| (name.to_owned(), json!(text))),
        );
        facts.insert("enforced".to_owned(), json!(outcome.enforced));
        Self {
            text: background(late) + &page(&stdout, &stderr, outcome, &trailer),
            is_error: !outcome.ending.is_success(),
            meta: Map::from_iter([(OUTCOME.to_owned(), facts.into())]),
            images: images.clone(),
            structured,
        }
    }
}

/// How much of [`INLINE`] a stream may use beside the other one.
fn room(other: &Stream) -> usize {
    INLINE - usize::try_from(other.bytes).unwrap_or(usize::MAX).min(INLINE / 2)
}

/// What came between the last call and this one, so that it is not taken for this call's.
fn background(mut late: String) -> String {
    if late.is_empty() {
        return late;
    }
    end_line(&mut late);
    format!("--- background, since the last call ---\n{late}--- this call ---\n")
}

/// Both streams, stderr under a line that says so, and the trailer on the last line.
fn page(stdout: &Shaped, stderr: &Shaped, outcome: &Outcome, trailer: &str) -> String {
    let parts = match stdout.cut || stderr.cut {
        true => Vec::new(),
        false => in_order(&outcome.stdout.head, &outcome.stderr.head, &outcome.order),
    };
    let mut page = String::new();
    if parts.len() > 2 {
        for (source, bytes) in parts {
            let part = Stream { head: bytes.to_vec(), tail: Vec::new(), bytes: bytes.len() as u64 };
            add(&mut page, source, &shape(&part, INLINE, None).text);
        }
    } else {
        add(&mut page, Source::Stdout, &stdout.text);
        add(&mut page, Source::Stderr, &stderr.text);
    }
    page.push_str(trailer);
    page
}

/// What a page says before a part of stdout that does not come first, and before stderr.
fn heading(source: Source) -> &'static str {
    match source {
        Source::Stdout => "--- stdout ---\n",
        Source::Stderr => "--- stderr ---\n",
    }
}

fn add(page: &mut String, source: Source, text: &str) {
    let empty = match source {
        Source::Stdout => text.is_empty(),
        // A shell that is interrupted writes an empty line.
        Source::Stderr => text.trim().is_empty(),
    };
    if empty {
        return;
    }
    if source == Source::Stderr || !page.is_empty() {
        page.push_str(heading(source));
    }
    page.push_str(text);
    end_line(page);
}

/// Both streams cut where the other one goes on, at ends of lines only; nothing if the order is not
/// known.
fn in_order<'s>(stdout: &'s [u8], stderr: &'s [u8], order: &Order) -> Vec<(Source, &'s [u8])> {
    let (mut out, mut err) = ((stdout, 0), (stderr, 0));
    let mut parts: Vec<(Source, &[u8])> = Vec::new();
    for (source, bytes) in order.runs() {
        let (rest, owed) = match source {
            Source::Stdout => &mut out,
            Source::Stderr => &mut err,
        };
        // `owed` was shown ahead of its time, to end a line.
        let due = bytes.saturating_sub(*owed);
        *owed = owed.saturating_sub(*bytes);
        let due = due.min(rest.len());
        let line = rest[due..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |at| due + at + 1);
        let end = if due == 0 || rest[due - 1] == b'\n' { due } else { line };
        *owed += end - due;
        let (part, left) = rest.split_at(end);
        *rest = left;
        if !part.is_empty() {
            parts.push((*source, part));
        }
    }
    parts
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// `[exit 3 · 0.12 s · 14 MB]`: how it ended, the wall-clock time, the peak memory if known.
fn trailer(outcome: &Outcome, replaced: bool) -> String {
    let Usage { wall_us, cpu_us: _, peak_memory, peak_pids: _ } = outcome.usage;
    let mut facts = vec![harmless(&outcome.ending.to_string())];
    facts.extend(outcome.session.as_ref().and_then(|note| state(note, &outcome.ending)));
    facts.push(seconds(wall_us));
    if peak_memory > 0 {
        facts.push(megabytes(peak_memory));
    }
    // Only bubblewrap in the engine's place reports it so.
    let namespaces = outcome.enforced.get(Wall::Namespaces);
    if namespaces.is_some_and(|report| report.strength != Strength::Active) {
        facts.push("weaker sandbox: bubblewrap".to_owned());
    }
    if replaced {
        facts.push("invalid UTF-8 replaced".to_owned());
    }
    facts.extend(shown(&outcome.files.images));
    facts.extend(not_shown(&outcome.files.left_out));
    let looked_at = outcome.files.looked_at;
    facts.extend(looked_at.map(|files| format!("only {files} files were looked at for images")));
    format!("[{}]", facts.join(" · "))
}

/// The pictures, as a program reads of them.
fn pictures(files: &Files) -> Value {
    let Files { stdout: _, stderr: _, images, left_out, looked_at } = files;
    let images = images.iter().map(
        |Image { name, mime, bytes }| json!({"name": name, "mime": mime, "bytes": bytes.len()}),
    );
    let left_out = left_out
        .iter()
        .take(NAMED)
        .map(|LeftOut { name, bytes, why }| json!({"name": name, "bytes": bytes, "why": why}));
    json!({
        "shown": images.collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
        "all_looked_at": looked_at.is_none(),
    })
}

/// So many of the pictures that were left out are named.
const NAMED: usize = 3;

/// `2 images: a.png, b.png`, in the order in which they follow the text.
fn shown(images: &[Image]) -> Option<String> {
    let names: Vec<String> = images.iter().map(|image| short(&image.name)).collect();
    match names.len() {
        0 => None,
        1 => Some(format!("1 image: {}", names[0])),
        many => Some(format!("{many} images: {}", names.join(", "))),
    }
}

/// `not shown: a.png (3 MB: larger than 1 MiB) and 7 more`.
fn not_shown(left_out: &[LeftOut]) -> Option<String> {
    let named: Vec<String> = left_out
        .iter()
        .take(NAMED)
        .map(|LeftOut { name, bytes, why }| format!("{} ({}: {why})", short(name), size(*bytes)))
        .collect();
    let more = match left_out.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| format!("not shown: {}{more}", named.join(", ")))
}

/// A file's name, which is anybody's words, on one line of bounded length.
fn short(name: &str) -> String {
    let name = harmless(name).replace('\n', "\\n").replace('\t', "\\t");
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// So many characters of a file's name are told.
const LONGEST_NAME: usize = 80;

/// Bytes as kB below 1 MB.
fn size(bytes: u64) -> String {
    if bytes > 999_000 { megabytes(bytes) } else { format!("{} kB", bytes.div_ceil(1000)) }
}

/// What a model must know of its session: that state is gone, or that it is not though it might be
/// feared.
fn state(note: &SessionNote, ending: &Ending) -> Option<String> {
    let before = note
        .restarted
        .as_ref()
        .map(|why| format!("new session: the state of earlier calls was lost ({})", harmless(why)));
    let after = match (note.kept, ending) {
        (false, _) => Some("session ended, state lost".to_owned()),
        (true, Ending::Exited { .. }) => None,
        (true, _) => Some("state kept".to_owned()),
    };
    let known: Vec<String> = before.into_iter().chain(after).collect();
    (!known.is_empty()).then(|| known.join(" · "))
}

/// Microseconds as seconds, to the hundredth.
fn seconds(us: u64) -> String {
    let hundredths = us.saturating_add(5_000) / 10_000;
    format!("{}.{:02} s", hundredths / 100, hundredths % 100)
}

/// Bytes as MB (10⁶ bytes), rounded up so that nothing is 0.
fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8]) -> Stream {
        Stream { head: bytes.to_vec(), tail: Vec::new(), bytes: bytes.len() as u64 }
    }

    fn outcome(ending: Ending, stdout: &[u8], stderr: &[u8]) -> Outcome {
        Outcome {
            ending,
            stdout: stream(stdout),
            stderr: stream(stderr),
            order: crate::outcome::Order::default(),
            usage: Usage {
                wall_us: 123_456,
                cpu_us: 100_000,
                peak_memory: 13_500_000,
                peak_pids: None,
            },
            enforced: crate::outcome::Enforced::default(),
            session: None,
            files: Files::default(),
        }
    }

    #[test]
    fn the_trailer_is_the_last_line() {
        let answer = Answer::from(&outcome(Ending::Exited { code: 0 }, b"42\n", b""));
        assert_eq!(answer.text, "42\n[exit 0 · 0.12 s · 14 MB]");
        assert!(!answer.is_error);
        let answer = Answer::from(&outcome(Ending::Exited { code: 3 }, b"a", b"b\0"));
        assert_eq!(answer.text, "a\n--- stderr ---\nb\\x00\n[exit 3 · 0.12 s · 14 MB]");
        assert!(answer.is_error);
        let answer = Answer::from(&outcome(Ending::Signaled { signal: 11 }, b"", b"\xff"));
        assert_eq!(
            answer.text,
            "--- stderr ---\n\u{fffd}\n[killed by SIGSEGV · 0.12 s · 14 MB · invalid UTF-8 replaced]"
        );
    }

    #[test]
    fn both_streams_are_told_in_the_order_in_which_they_were_written() {
        let page = |stdout: &[u8], stderr: &[u8], runs: &[(Source, usize)]| {
            let mut outcome = outcome(Ending::Exited { code: 0 }, stdout, stderr);
            runs.iter().for_each(|(source, bytes)| outcome.order.note(*source, *bytes));
            let text = Answer::from(&outcome).text;
            text[..text.rfind('[').expect("a trailer")].to_owned()
        };
        use Source::{Stderr, Stdout};
        let runs = [(Stdout, 2), (Stderr, 2), (Stdout, 2)];
        assert_eq!(page(b"1\n3\n", b"2\n", &runs), "1\n--- stderr ---\n2\n--- stdout ---\n3\n");
        // Lines are not torn, nor characters.
        let runs = [(Stdout, 1), (Stderr, 2), (Stdout, 5)];
        assert_eq!(
            page("é1\n3\n".as_bytes(), b"2\n", &runs),
            "é1\n--- stderr ---\n2\n--- stdout ---\n3\n"
        );
        // Two parts need no order, and too many tell nothing.
        assert_eq!(page(b"2\n", b"1\n", &[(Stderr, 2), (Stdout, 2)]), "2\n--- stderr ---\n1\n");
        let many = [(Stdout, 1), (Stderr, 1)].repeat(20);
        let text = page(&[b'o'; 20], &[b'e'; 20], &many);
        assert_eq!(text, format!("{}\n--- stderr ---\n{}\n", "o".repeat(20), "e".repeat(20)));
    }

    #[test]
    fn every_ending_but_exit_0_is_an_error_and_says_why() {
        for (ending, words) in [
            (Ending::TimedOut { after_ms: 30_000 }, "[timed out after 30 s · "),
            (Ending::OutOfMemory, "[out of memory · "),
            (Ending::OutputLimit { bytes: 10 }, "[stopped: wrote more than 10 bytes · "),
            (Ending::Cancelled, "[cancelled · "),
            (
                Ending::CouldNotStart { program: "\x1b[2J".to_owned(), errno: 13 },
                "[could not start \\x1b[2J: permission denied · ",
            ),
        ] {
            let answer = Answer::from(&outcome(ending, b"partial", b""));
            assert!(answer.is_error);
            assert!(answer.text.starts_with(&format!("partial\n{words}")), "{}", answer.text);
        }
    }

    #[test]
    fn about_8_kib_reach_the_model() {
        let long = vec![b'x'; 200_000];
        for (stdout, stderr) in [(&long[..], &long[..]), (&long, b"e"), (b"o", &long), (&long, b"")]
        {
            let answer = Answer::from(&outcome(Ending::Exited { code: 0 }, stdout, stderr));
            assert!((8_000..8_600).contains(&answer.text.len()), "{}", answer.text.len());
            let facts = &answer.meta[OUTCOME];
            assert_eq!(facts["bytes"], json!({"stdout": stdout.len(), "stderr": stderr.len()}));
            assert_eq!(facts["truncated"], json!(true));
        }
    }

    #[test]
    fn facts_are_typed() {
        let answer = Answer::from(&outcome(Ending::Exited { code: 3 }, b"a", b""));
        assert_eq!(
            answer.meta[OUTCOME],
            json!({
                "ending": {"kind": "exited", "code": 3},
                "usage": {"wall_us": 123_456, "cpu_us": 100_000, "peak_memory": 13_500_000},
                "bytes": {"stdout": 1, "stderr": 0},
                "truncated": false,
                "enforced": [],
            })
        );
    }

    #[test]
    fn who_asks_for_structure_misses_nothing() {
        let mut outcome = outcome(Ending::Exited { code: 3 }, b"a\x1b", b"b");
        outcome.session = Some(SessionNote {
            name: "s".to_owned(),
            kept: true,
            restarted: None,
            late: stream(b"late\n"),
        });
        assert_eq!(
            Value::Object(Answer::from(&outcome).structured),
            json!({
                "stdout": "a\\x1b",
                "stderr": "b",
                "background": "late\n",
                "trailer": "[exit 3 · 0.12 s · 14 MB]",
                "ending": {"kind": "exited", "code": 3},
                "usage": {"wall_us": 123_456, "cpu_us": 100_000, "peak_memory": 13_500_000},
                "bytes": {"stdout": 2, "stderr": 1},
                "truncated": false,
                "session": {"name": "s", "kept": true, "restarted": null},
            })
        );
        let refused = Value::Object(Answer::advice("no").structured);
        assert_eq!(refused, json!({"error": "no", "fault": "caller"}));
    }

    #[test]
    fn a_refusal_says_whose_fault_it_is() {
        for (fault, text, name) in [
            (Fault::Caller, "no\\x1b", "caller"),
            (Fault::Host, "sandbox error (host): no\\x1b", "host"),
            (Fault::Ours, "sandbox error (internal): no\\x1b", "internal"),
        ] {
            let answer = Answer::from(&RunError::Other { fault, message: "no\x1b".to_owned() });
            assert_eq!((answer.text.as_str(), answer.is_error), (text, true));
            assert_eq!(answer.meta[FAULT], json!(name));
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(seconds(0), "0.00 s");
        assert_eq!(seconds(61_239_999), "61.24 s");
        assert_eq!(megabytes(1), "1 MB");
        assert_eq!(megabytes(2_000_000_000), "2000 MB");
    }
}
