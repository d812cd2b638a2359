//! What a client that waits is told meanwhile: for how long it runs, and what it wrote last.
//!
//! It also keeps clients from giving up: most reset their clock at every notification.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::text::harmless;
use crate::runner::Newest;

/// When the first word comes: most runs are over by then.
const FIRST: Duration = Duration::from_secs(2);
/// How long until the next one.
const NEXT: Duration = Duration::from_secs(3);
/// Characters of the newest line that are shown.
const SHOWN: usize = 200;

/// Waits for `work`. Meanwhile, `tell` gets the seconds that have passed, and a line for people.
pub(super) async fn meanwhile<T, Told: Future<Output = ()>>(
    work: impl Future<Output = T>,
    newest: &Newest,
    tell: impl Fn(f64, String) -> Told,
) -> T {
    let begun = Instant::now();
    let mut work = pin!(work);
    let mut tick = interval_at(begun + FIRST, NEXT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let told = async {
            tick.tick().await;
            let seconds = begun.elapsed().as_secs_f64().round();
            tell(seconds, message(seconds, &newest.line())).await;
        };
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = told => {}
        }
    }
}

/// `5 s`, or `5 s · epoch 3 of 10`.
fn message(seconds: f64, line: &[u8]) -> String {
    let line = harmless(&String::from_utf8_lossy(line));
    if line.is_empty() {
        return format!("{seconds} s");
    }
    let shown: String = line.chars().take(SHOWN).collect();
    let more = if shown.len() < line.len() { "…" } else { "" };
    format!("{seconds} s · {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_harmless_line() {
        assert_eq!(message(5.0, b""), "5 s");
        assert_eq!(message(62.0, b"\x1b[2J3 of 10\xff"), "62 s · \\x1b[2J3 of 10\u{fffd}");
        let long = message(5.0, "€".repeat(300).as_bytes());
        assert_eq!(long, format!("5 s · {}…", "€".repeat(SHOWN)));
    }

    #[tokio::test]
    async fn who_is_done_at_once_tells_nothing() {
        let tell = |_, _| async { panic!("too early") };
        assert_eq!(meanwhile(async { 42 }, &Newest::default(), tell).await, 42);
    }
}
