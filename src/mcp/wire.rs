//! The protocol's two ends: lines that come in, lines that go out.
//!
//! Each end has a thread that blocks in `read` or `write`: that serves pipes, sockets, files and
//! terminals alike and changes no flag of a description that others share. Neither thread keeps the
//! process alive once `main` has returned.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc as threads};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use super::id::Scan;

/// The longest line that is taken, bytes, its end not counted. Longer ones are skipped as they
/// come in, never held.
pub(super) const MAX_LINE: usize = 16 << 20;

/// One line of input.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// All of it, its end included.
    Whole(Vec<u8>),
    /// It was longer than [`MAX_LINE`]; its `id`, if it had one.
    TooLong(Option<Value>),
}

/// Both ends.
#[derive(Debug)]
pub(super) struct Wire {
    /// The lines that come in; `None` at the end of the input.
    pub(super) lines: mpsc::Receiver<Line>,
    /// Writes lines.
    pub(super) pen: Pen,
    /// Told once nobody can read what is written.
    pub(super) broken: Arc<Notify>,
}

/// Writes lines, whole and in order. Clones write to the same output.
#[derive(Debug, Clone)]
pub(super) struct Pen(threads::Sender<(Vec<u8>, oneshot::Sender<io::Result<()>>)>);

impl Wire {
    /// Takes over standard input and output: what this process or a child of it writes to
    /// descriptor 1 from now on goes to standard error, and descriptor 0 gives nothing.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub(super) fn stdio() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
        nix::unistd::dup2_stdout(io::stderr())?;
        Self::over(input, output)
    }

    /// Reads lines from `input` and writes lines to `output`.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub(super) fn over(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let broken = Arc::new(Notify::new());
        let (lines, incoming) = mpsc::channel(1);
        let (pen, outgoing) = threads::channel();
        let (watched, hung_up) = (output.try_clone()?, Arc::clone(&broken));
        thread::Builder::new().name("mcp-in".to_owned()).spawn(move || {
            // An input that cannot be read has ended.
            if let Err(error) = read_lines(File::from(input), &lines) {
                tracing::error!(%error, "standard input cannot be read");
            }
            drop(lines);
            wait_for_hang_up(&watched);
            hung_up.notify_one();
        })?;
        let failed = Arc::clone(&broken);
        thread::Builder::new()
            .name("mcp-out".to_owned())
            .spawn(move || write_lines(File::from(output), &outgoing, &failed))?;
        Ok(Self { lines: incoming, pen: Pen(pen), broken })
    }
}

impl Pen {
    /// Queues one line, its end included, at once; the future is done when it has been written.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub(super) fn write(
        &self,
        line: Vec<u8>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (done, written) = oneshot::channel();
        let queued = self.0.send((line, done)).is_ok();
        async move {
            match written.await {
                Ok(written) if queued => written,
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
}

/// Sends every line of `input` on, the last one even if it has no end.
fn read_lines(input: impl Read, lines: &mpsc::Sender<Line>) -> io::Result<()> {
    let mut input = BufReader::new(input);
    loop {
        let mut line = Vec::new();
        input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        let line = match line.len() {
            0 => return Ok(()),
            length if length > MAX_LINE && !line.ends_with(b"\n") => {
                Line::TooLong(skip(&mut input, line)?)
            }
            _ => Line::Whole(line),
        };
        if lines.blocking_send(line).is_err() {
            return Ok(());
        }
    }
}

/// Skips the rest of a line that began with `start`; its `id`.
fn skip(input: &mut impl BufRead, start: Vec<u8>) -> io::Result<Option<Value>> {
    let mut scan = Scan::default();
    scan.feed(&start);
    drop(start);
    loop {
        let bytes = input.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        scan.feed(&bytes[..taken]);
        input.consume(taken);
        if end.is_some() || taken == 0 {
            return Ok(scan.id());
        }
    }
}

/// Writes lines until nobody wants to write or nobody reads.
fn write_lines(
    mut output: impl Write,
    lines: &threads::Receiver<(Vec<u8>, oneshot::Sender<io::Result<()>>)>,
    failed: &Notify,
) {
    for (line, done) in lines {
        let written = output.write_all(&line).and_then(|()| output.flush());
        let end = written.is_err();
        // Who asked may have gone.
        let _ = done.send(written);
        if end {
            return failed.notify_one();
        }
    }
}

/// Returns when the other side of `output` is closed. Never, if it is a file.
fn wait_for_hang_up(output: &OwnedFd) {
    // Errors and hang-ups are reported without being asked for.
    let mut watched = [PollFd::new(output.as_fd(), PollFlags::empty())];
    while poll(&mut watched, PollTimeout::NONE) == Err(nix::errno::Errno::EINTR) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines_of(input: &[u8]) -> Vec<Line> {
        let (sender, mut receiver) = mpsc::channel(100);
        read_lines(input, &sender).unwrap();
        drop(sender);
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    #[test]
    fn lines_come_whole_and_in_order() {
        assert_eq!(lines_of(b""), []);
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(
            lines_of(b"a\n\nb\r\nc"),
            [whole("a\n"), whole("\n"), whole("b\r\n"), whole("c")]
        );
    }

    #[test]
    fn a_line_too_long_is_skipped_but_its_id_is_known() {
        let mut input = vec![b'x'; MAX_LINE];
        input.extend_from_slice(b"\n{\"params\":\"");
        input.extend_from_slice(&vec![b'y'; MAX_LINE]);
        input.extend_from_slice(b"\",\"id\":4}\nnext\n");
        input.extend_from_slice(&vec![b'z'; MAX_LINE + 1]);
        let lines = lines_of(&input);
        assert!(matches!(&lines[0], Line::Whole(line) if line.len() == MAX_LINE + 1));
        assert_eq!(lines[1], Line::TooLong(Some(json!(4))));
        assert_eq!(lines[2..], [Line::Whole(b"next\n".to_vec()), Line::TooLong(None)]);
    }

    #[tokio::test]
    async fn a_closed_output_is_told() {
        let (ours, theirs) = io::pipe().unwrap();
        let wire = Wire::over(File::open("/dev/zero").unwrap().into(), theirs.into()).unwrap();
        drop(ours);
        assert!(wire.pen.write(b"line\n".to_vec()).await.is_err());
        wire.broken.notified().await;
        assert!(wire.pen.write(b"line\n".to_vec()).await.is_err());
    }

    #[tokio::test]
    async fn an_output_that_closes_after_the_input_is_told_without_a_write() {
        let (ours, theirs) = io::pipe().unwrap();
        let mut wire = Wire::over(File::open("/dev/null").unwrap().into(), theirs.into()).unwrap();
        assert_eq!(wire.lines.recv().await, None);
        drop(ours);
        wire.broken.notified().await;
    }
}
