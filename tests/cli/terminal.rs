//! `exec` on a terminal (TTY-01 to TTY-05).

use nix::sys::signal::Signal;

use crate::harness::{SIZE, Tty, eventually, marked, program, seconds, send, slower};

#[test]
fn exec_on_a_terminal_has_a_pty_of_its_own() {
    let script = "tty; stty size; echo TERM=$TERM; \
                  for n in 0 1 2; do test -t $n && readlink /proc/self/fd/$n; done; \
                  echo hi >/dev/tty; exit 3";
    let mut tty = Tty::start(&["exec", "--", "sh", "-c", script]);
    assert_eq!(tty.code(), 3);
    let size = format!("{} {}", SIZE.ws_row, SIZE.ws_col);
    let wanted = [
        "/dev/pts/0",
        &size,
        "TERM=xterm-test",
        "/dev/pts/0",
        "/dev/pts/0",
        "/dev/pts/0",
        "hi",
        "",
    ];
    assert_eq!(tty.seen, wanted.join("\r\n"));
}

#[test]
fn ctrl_c_is_130_and_ctrl_backslash_131() {
    for (key, code) in [("\x03", 130), ("\x1c", 131)] {
        let mut tty = Tty::start_cat();
        assert!(!tty.is_restored(), "raw meanwhile");
        tty.keys(key);
        assert_eq!(tty.code(), code);
    }
}

#[test]
fn ctrl_d_is_the_end_of_input() {
    let mut tty = Tty::start(&["exec", "--", "cat"]);
    tty.keys("one\r");
    tty.until("one\r\none\r\n");
    tty.keys("\x04");
    assert_eq!(tty.code(), 0);
}

#[test]
fn the_terminal_is_as_it_was_after_every_way_out() {
    // The payload is killed.
    let mut tty = Tty::start(&["exec", "--", "sh", "-c", "echo ready; kill -KILL $$"]);
    assert_eq!(tty.code(), 137);
    // The program is told to end.
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut tty = Tty::start_cat();
        send(&tty.child, signal);
        assert_eq!(tty.code(), 128 + signal as i32);
    }
    // A time-out; the command is not found; the command changed the modes of its own terminal.
    let mut tty = Tty::start(&["exec", "--timeout", &seconds(0.5), "--", "sleep", "1000"]);
    assert_eq!(tty.code(), 124);
    assert!(tty.seen.ends_with("sets another limit\r\n"), "{:?}", tty.seen);
    assert_eq!(Tty::start(&["exec", "--", "no-such-program"]).code(), 127);
    assert_eq!(Tty::start(&["exec", "--", "sh", "-c", "stty raw -echo; exit 8"]).code(), 8);
    assert_eq!(Tty::start(&["exec", "--env", "nope", "--", "true"]).code(), 125);
}

#[test]
fn the_window_size_follows() {
    let script = "trap 'stty size; exit 9' WINCH; echo ready; while :; do sleep 0.1; done";
    let mut tty = Tty::start(&["exec", "--", "sh", "-c", script]);
    tty.until("ready\r\n");
    tty.resize(nix::pty::Winsize { ws_row: 50, ws_col: 60, ..SIZE });
    assert_eq!(tty.code(), 9);
    assert_eq!(tty.seen, "50 60\r\n");
}

#[test]
fn nothing_is_lost_at_the_end() {
    for _ in 0..5 {
        let script = "(while :; do echo y; done) & head -c 60000 /dev/zero | tr '\\0' x; exit 2";
        let mut tty = Tty::start(&["exec", "--", "sh", "-c", script]);
        assert_eq!(tty.code(), 2);
        assert_eq!(tty.seen.matches('x').count(), 60_000);
    }
}

#[test]
fn a_terminal_that_nobody_reads_keeps_neither_the_time_limit_nor_a_signal_from_ending_it() {
    let half = seconds(0.5);
    for option in ["--raw", "--no-tty"] {
        let mut tty = Tty::start(&["exec", option, "--timeout", &half, "--", "yes"]);
        assert_eq!((option, tty.unread_code()), (option, 124));
        let mut tty = Tty::start(&["exec", option, "--timeout", "600", "--", "yes"]);
        // Until it is full, which nothing tells: it moves what it has and seems to have room again.
        std::thread::sleep(std::time::Duration::from_millis(500) * slower());
        send(&tty.child, Signal::SIGTERM);
        assert_eq!((option, tty.unread_code()), (option, 143));
    }
}

#[test]
fn nothing_is_lost_on_a_terminal_that_is_read_slowly() {
    let wanted: String = (1..=30_000).map(|number| format!("{number}\r\n")).collect();
    for option in ["--raw", "--no-tty"] {
        let mut tty = Tty::start(&["exec", option, "--", "seq", "30000"]);
        assert_eq!(tty.slowly_read_code(), 0);
        assert!(tty.seen == wanted, "{option}: {} of {} bytes", tty.seen.len(), wanted.len());
    }
}

#[test]
fn pushing_input_with_tiocsti_is_refused() {
    let code = "import fcntl, os, termios\n\
                for place in 0, 1, 2, os.open('/dev/tty', os.O_RDWR):\n\
                \x20try: fcntl.ioctl(place, termios.TIOCSTI, b'i'); print('PUSHED')\n\
                \x20except OSError as error: print(error.errno)\n";
    let mut tty = Tty::start(&["exec", "--env", "python", "--", "python3", "-c", code]);
    assert_eq!(tty.code(), 0);
    assert_eq!(tty.seen, "1\r\n".repeat(4));
}

#[test]
fn drawing_passes_and_orders_to_the_emulator_do_not_unless_raw() {
    let script = r"printf '\033[31mred\033[0m\033]52;c;aGk=\007\033[21t\033]0;t\007.'";
    let mut tty = Tty::start(&["exec", "--", "sh", "-c", script]);
    assert_eq!(tty.code(), 0);
    assert_eq!(tty.seen, "\x1b[31mred\x1b[0m\x1b]0;t\x07.");
    let mut tty = Tty::start(&["exec", "--raw", "--", "sh", "-c", script]);
    assert_eq!(tty.code(), 0);
    assert_eq!(tty.seen, "\x1b[31mred\x1b[0m\x1b]52;c;aGk=\x07\x1b[21t\x1b]0;t\x07.");
}

#[test]
fn ctrl_z_then_fg_with_and_without_a_pty() {
    let program = program();
    let program = program.to_str().expect("text");
    for option in ["", "--no-tty"] {
        let mut tty = shell();
        tty.keys(&format!(
            "{program} exec {option} -- sh -c 'echo rea''dy; sleep 1; echo do''ne; exit 6'\n"
        ));
        tty.until("ready\r\n");
        // Not while dash is in vfork(2): a child that is stopped before its exec keeps its parent
        // from stopping, outside of sandboxes too.
        std::thread::sleep(std::time::Duration::from_millis(300));
        tty.keys("\x1a");
        tty.until("Stopped");
        eventually("the shell has its terminal", || tty.is_restored());
        std::thread::sleep(std::time::Duration::from_millis(1500));
        tty.keys("fg\n");
        tty.until("done\r\n");
        // What is typed before the prompt is meant for the command.
        tty.until("> ");
        tty.keys("echo code $?\n");
        tty.until("code 6\r\n");
        tty.keys("exit 0\n");
        assert_eq!(tty.code(), 0);
    }
}

/// An interactive shell, outside of sandboxes.
fn shell() -> Tty {
    let mut tty = Tty::start_other(&["bash", "--norc", "--noprofile", "--noediting", "-i"]);
    tty.until("> ");
    tty
}

/// A shell with a command in a sandbox, which has said that it is ready: sleeping under the name `mark`,
/// with `option`, in the background or not, as `rest` says.
fn job(option: &str, mark: &str, rest: &str) -> Tty {
    let mut tty = shell();
    let script = format!("echo rea''dy; exec sleep {mark}");
    tty.keys(&format!("{} exec {option} -- sh -c \"{script}\"{rest}\n", program().display()));
    tty.until("ready\r");
    tty
}

/// Ends the shell; nothing of its job is left.
fn leave(mut tty: Tty, mark: &str) {
    eventually("nothing is left", || marked(mark).is_empty());
    tty.keys("exit 0\n");
    assert_eq!(tty.code(), 0);
}

/// How the job of a shell ends that is told to by `words`, as the shell says it.
fn ended_by(tty: &mut Tty, words: &str) -> String {
    tty.keys(&format!("{words}\n"));
    let mut said = String::new();
    eventually("the job ends", || {
        tty.keys("echo ag''ain\n");
        said += &tty.until("again\r\n");
        said.contains("Exit ")
    });
    let (_, code) = said.split_once("Exit ").expect("it ended");
    code.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn a_background_job_runs_on_leaves_the_terminal_alone_and_ends_by_kill() {
    for (at, (option, signal, code)) in [
        ("", "TERM", "143"),
        ("", "HUP", "129"),
        ("--no-tty", "TERM", "143"),
        ("--no-tty", "HUP", "129"),
    ]
    .into_iter()
    .enumerate()
    {
        let mark = format!("{}.{:09}", 3000 + at, std::process::id());
        let mut tty = job(option, &mark, " &");
        // What is typed is the shell's.
        tty.keys("echo ty''ped\n");
        tty.until("typed\r\n");
        tty.keys("jobs; echo do''ne\n");
        assert!(tty.until("done\r\n").contains("Running"), "{option}");
        assert!(tty.is_restored(), "{option}");
        assert_eq!(ended_by(&mut tty, &format!("kill -{signal} %1")), code, "{option} {signal}");
        leave(tty, &mark);
    }
}

#[test]
fn a_job_that_was_stopped_by_ctrl_z_ends_by_kill_also_in_the_background() {
    for (at, (option, before, signal, code)) in [
        ("", "", "TERM", "143"),
        ("", "", "HUP", "129"),
        ("", "bg; sleep 0.5; ", "TERM", "143"),
        ("--no-tty", "", "TERM", "143"),
        ("--no-tty", "bg; sleep 0.5; ", "HUP", "129"),
    ]
    .into_iter()
    .enumerate()
    {
        let mark = format!("{}.{:09}", 4000 + at, std::process::id());
        let mut tty = job(option, &mark, "");
        tty.keys("\x1a");
        tty.until("Stopped");
        tty.until("> ");
        let how = format!("{option} {before} {signal}");
        assert_eq!(ended_by(&mut tty, &format!("{before}kill -{signal} %1")), code, "{how}");
        leave(tty, &mark);
    }
}

#[test]
fn a_background_job_takes_the_terminal_when_it_comes_to_the_foreground() {
    let mut tty = shell();
    let script = "echo rea''dy; while read word; do echo got $word; done";
    tty.keys(&format!(
        "{} exec -- sh -c \"{}\" &\n",
        program().display(),
        script.replace('$', "\\$")
    ));
    tty.until("ready\r");
    tty.keys("fg\n");
    // The shell says it before it hands the terminal over, and nothing tells when it has.
    tty.until("done\"\r\n");
    std::thread::sleep(std::time::Duration::from_millis(500) * slower());
    // What tells that it has the terminal is that something is typed there.
    tty.keys("one\n");
    tty.until("got one\r\n");
    assert!(!tty.is_restored(), "raw now");
    tty.keys("two\r");
    tty.until("got two\r\n");
    tty.keys("\x03");
    tty.until("> ");
    tty.keys("echo code $?\n");
    tty.until("code 130\r\n");
    tty.keys("exit 0\n");
    assert_eq!(tty.code(), 0);
}

#[test]
fn a_background_job_has_not_the_modes_of_the_shell_that_edits_a_line() {
    let mut tty = Tty::start_other(&["bash", "--norc", "--noprofile", "-i"]);
    tty.until("> ");
    let script = r#"echo mode: $(stty -a | tr " ;" "\n\n" | grep icanon)"#;
    tty.keys(&format!("{} exec -- sh -c '{script}' &\r", program().display()));
    tty.until("> mode: icanon\r");
    tty.keys("exit 0\r");
    assert_eq!(tty.code(), 0);
}

#[test]
fn where_background_jobs_may_not_write_it_is_stopped_goes_on_and_ends_by_kill() {
    let program = program();
    let script = "while :; do echo li''ne; read -t 0.1; done";
    for option in ["", "--no-tty"] {
        let mut tty = shell();
        tty.keys("stty tostop\n");
        tty.until("> ");
        tty.keys(&format!("{} exec {option} -- bash -c \"{script}\" &\n", program.display()));
        eventually("it is stopped", || {
            tty.keys("jobs; echo do''ne\n");
            tty.until("done\r\n").contains("Stopped")
        });
        tty.keys("fg\n");
        tty.until("line\r\n");
        // Until it has heard all of that it goes on, which nothing tells.
        std::thread::sleep(std::time::Duration::from_millis(300) * slower());
        tty.keys("\x1a");
        tty.until("Stopped");
        assert_eq!(ended_by(&mut tty, "kill %1"), "143", "{option}");
        tty.keys("stty -tostop; exit 0\n");
        assert_eq!(tty.code(), 0);
    }
}

#[test]
fn an_interactive_shell_inside_has_job_control() {
    let mut tty = Tty::start(&["exec", "--", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
    // `fg` tells the command before it hands over the terminal: a Ctrl-C in between would be the shell's.
    let job = r#"sh -c 'trap "echo back" CONT; echo beg''un; while :; do sleep 0.1; done'"#;
    tty.keys(&format!("{job}\r"));
    tty.until("begun\r\n");
    // Until the shell waits for it, which nothing tells.
    std::thread::sleep(std::time::Duration::from_millis(500) * slower());
    tty.keys("\x1a");
    tty.until("Stopped");
    tty.until("$ ");
    tty.keys("fg\r");
    tty.until(&format!("fg\r\n{job}\r\n"));
    tty.until("back\r\n");
    tty.keys("\x03");
    tty.until("^C");
    tty.until("$ ");
    tty.keys("exit 4\r");
    assert_eq!(tty.code(), 4);
}

#[test]
fn a_terminal_that_hangs_up_ends_the_run_also_where_the_signal_is_ignored() {
    let script = format!("trap '' HUP; exec {} exec -- cat", program().display());
    let mut tty = Tty::start_other(&["sh", "-c", &script]);
    tty.keys("ready\r");
    tty.until("ready\r\nready\r\n");
    tty.hang_up();
    eventually("it ends", || tty.child.try_wait().expect("waited for").is_some());
    assert_eq!(tty.child.wait().expect("ended").code(), Some(129));
}
