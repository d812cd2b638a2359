//! Group 8: terminals and output.

use serde_json::json;

use super::server::Server;
use crate::needs;

entries! {
    tty_08_bytes_that_are_no_text: "TTY-08" "tty/TTY-08.py" => "\
        invalid \u{fffd}\u{fffd}\n\
        surrogate \u{fffd}\u{fffd}\u{fffd}\n\
        pair \u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\n\
        overlong \u{fffd}\u{fffd}\n\
        too large \u{fffd}\u{fffd}\u{fffd}\u{fffd}\n\
        cut \u{fffd}\n\
        NUL \0.\n\
        lone \u{fffd}\n\
        BOM \u{feff}.\n\
        €🦀\n\
        ";
}

/// TTY-10: what a payload writes, and the odd words of a caller, reach the server's log at no level:
/// neither an escape sequence nor a line that looks like the server's own.
#[test]
fn tty_10_nothing_is_planted_in_the_log() {
    needs!(Userns);
    for form in ["trace", "trace,json"] {
        let mut server = Server::start(&[("NIX_SANDBOX_LOG", form)]);
        let planted =
            r"printf '\033[2J\033]0;t\007\n2026-01-01 ERROR planted\n\302\233x\r' >&2; exit 3";
        server.call(1, "shell", planted, 30);
        assert!(server.text(1).contains("planted"), "the caller gets it");
        server.call(2, "x\n2026-01-01 ERROR planted\u{1b}[2J", "echo", 30);
        server.text(2);
        server.notify("notifications/x\n2026 ERROR planted\u{1b}[2J", &json!({"a": "\n planted"}));
        let log = server.log();
        let control = |it: &char| it.is_control() && *it != '\n';
        assert_eq!(log.chars().find(control), None, "{log:?}");
        let planted = log.lines().find(|line| line.trim_start().starts_with("2026-01-01 ERROR"));
        assert_eq!(planted, None, "{log}");
    }
}
