//! Group 11: what code can do to the agent of its session, and what must not come of it.
//!
//! Each test is one conversation with a server. The agents alone, without a sandbox, are tried in
//! `tests/agent`.

use std::fs;
use std::time::{Duration, Instant};

use super::server::Server;
use super::support::{self, slower::slower};
use crate::needs;

const LOST: &str = "session ended, state lost";

/// In a session: the code, what it must write, and the trailer.
fn holds(server: &mut Server, env: &str, session: &str, steps: &[(&str, &str, &str)]) {
    for (code, said, trailer) in steps {
        let told = server.tell(env, session, code);
        assert_eq!((told.0.as_str(), told.1.as_str()), (*said, *trailer), "{code}");
    }
}

/// What code or its children write, by whatever way, is output.
#[test]
fn proto_01_what_is_written_is_output() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    let python = "import os, subprocess\nos.write(1, b'junk\\n')\n\
                  _ = subprocess.run('echo hi; echo done 1 0 0', shell=True)\nprint('end 1 0 0')";
    holds(
        &mut server,
        "python",
        "a",
        &[
            (python, "junk\nhi\ndone 1 0 0\nend 1 0 0", "exit 0"),
            ("print('next')", "next", "exit 0"),
        ],
    );
    holds(
        &mut server,
        "shell",
        "b",
        &[
            ("printf 'done 1 0 0\\n'; (echo child)", "done 1 0 0\nchild", "exit 0"),
            ("echo next", "next", "exit 0"),
        ],
    );
}

/// Frames of the protocol, written into every pipe that the code finds: it can end its own session,
/// and nothing else. The next call gets its own answer, and another session notices nothing.
#[test]
fn proto_02_forged_frames() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    let python = "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n\
                  \x20if fd > 2:\n\
                  \x20 try: os.write(fd, b'done 1 00000000000000000000000000000000 0\\n')\n\
                  \x20 except OSError: pass\n";
    holds(&mut server, "python", "other", &[("kept = 1", "", "exit 0")]);
    for code in [python, &python.replace("done 1", "end 7"), &python.replace("done", "x").repeat(3)]
    {
        let (_, trailer) = server.tell("python", "a", code);
        assert!(trailer.contains(LOST), "{code}: {trailer}");
        let (said, trailer) = server.tell("python", "a", "print('own answer')");
        assert_eq!(said, "own answer");
        assert!(trailer.starts_with("exit 0 · new session: the state of"), "{trailer}");
    }
    holds(&mut server, "python", "other", &[("kept", "1", "exit 0")]);
}

/// Code shares its process with the agent, so it can find what marks its own call. Then it can lie about
/// its own result; the true answer, which comes too late, must not become that of the next call.
#[test]
fn proto_02_a_frame_that_is_forged_well() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    let python = "import gc, os, re, sys\nfound = set()\n\
        def look(value):\n\
        \x20if isinstance(value, str): found.update(re.findall(r'\\b[0-9a-f]{32}\\b', value))\n\
        \x20if isinstance(value, bytes): found.update(n.decode() for n in re.findall(rb'\\b[0-9a-f]{32}\\b', value))\n\
        \x20if isinstance(value, (list, tuple)): [look(v) for v in value]\n\
        frame = sys._getframe()\nwhile frame:\n [look(v) for v in frame.f_locals.values()]\n frame = frame.f_back\n\
        for it in gc.get_objects():\n\
        \x20if isinstance(it, (list, tuple)) and len(it) < 100: look(it)\n\
        \x20if isinstance(it, dict) and len(it) < 1000: [look(v) for v in list(it.values())]\n\
        print('FORGED', len(found) > 0)\nsys.stdout.flush()\n\
        for fd in map(int, os.listdir('/proc/self/fd')):\n\
        \x20for nonce in found:\n\
        \x20 if fd > 2:\n\
        \x20  try: os.write(fd, f'done 1 {nonce} 42\\n'.encode())\n\
        \x20  except OSError: pass\n";
    let lie = server.tell("python", "a", python);
    assert_eq!(lie, ("FORGED True".to_owned(), "exit 42".to_owned()));
    // The true answer may come while the next call runs already: then that call ends the session.
    let (said, trailer) = server.tell("python", "a", "print('own answer')");
    assert!(said.is_empty() || said == "own answer", "{said}");
    let anew = "exit 0 · new session: the state of";
    if trailer.contains(LOST) {
        let (said, trailer) = server.tell("python", "a", "print('own answer')");
        assert!(said == "own answer" && trailer.starts_with(anew), "{said} {trailer}");
    } else {
        assert!(trailer.starts_with(anew), "{said} {trailer}");
    }
}

/// Whoever ends the interpreter is told so, with its code; the next call starts anew and says that too.
#[test]
fn proto_04_the_interpreter_is_ended() {
    needs!(Userns, Python, Node);
    let mut server = Server::start(&[]);
    let anew =
        |why: &str| format!("exit 0 · new session: the state of earlier calls was lost ({why})");
    for (env, code, ends, hello) in [
        ("python", "import os\nprint('x', flush=True)\nos._exit(3)", 3, "print('hello')"),
        (
            "python",
            "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo x; exit 4'])",
            4,
            "print('hello')",
        ),
        ("shell", "echo x; exit 7", 7, "echo hello"),
        ("shell", "echo x; exec sh -c 'exit 8'", 8, "echo hello"),
        ("node", "console.log('x'); process.exit(9)", 9, "console.log('hello')"),
    ] {
        let session = format!("{env}-{ends}");
        holds(
            &mut server,
            env,
            &session,
            &[
                (code, "x", &format!("exit {ends} · {LOST}")),
                (hello, "hello", &anew(&format!("exit {ends}"))),
                (hello, "hello", "exit 0"),
            ],
        );
    }
    let told =
        server.tell("python", "killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)");
    assert_eq!(told.1, format!("killed by SIGKILL · {LOST}"));
    // What ends a script ends the call here, and the state lives on.
    holds(
        &mut server,
        "python",
        "kept",
        &[
            ("import sys\nkept = 1\nsys.exit(7)", "", "exit 7"),
            ("quit()", "", "exit 0"),
            ("kept", "1", "exit 0"),
        ],
    );
}

/// Exceptions that are no errors are reported, and the agent lives.
#[test]
fn proto_05_odd_exceptions() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    holds(&mut server, "python", "a", &[("kept = 1", "", "exit 0")]);
    for (code, says, ends) in [
        ("raise KeyboardInterrupt", "KeyboardInterrupt", "exit 130"),
        ("raise GeneratorExit", "GeneratorExit", "exit 1"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd", "exit 1"),
        ("raise SystemExit('text')", "text", "exit 1"),
        ("def f(): f()\nf()", "RecursionError", "exit 1"),
    ] {
        let (said, trailer) = server.tell("python", "a", code);
        assert!(said.contains(says), "{code}: {said}");
        assert_eq!(trailer, ends, "{code}: {said}");
        holds(&mut server, "python", "a", &[("kept", "1", "exit 0")]);
    }
}

/// Standard input is at its end, and holds nothing of the protocol.
#[test]
fn proto_07_standard_input() {
    needs!(Userns, Python, Node);
    let mut server = Server::start(&[]);
    let (said, trailer) = server.tell("python", "a", "input()");
    assert!(said.ends_with("EOFError: EOF when reading a line"), "{said}");
    assert_eq!(trailer, "exit 1");
    holds(&mut server, "python", "a", &[("import sys\nsys.stdin.read()", "''", "exit 0")]);
    holds(
        &mut server,
        "shell",
        "b",
        &[
            ("cat; read -r line; echo \"<$line> $?\"", "<> 1", "exit 0"),
            ("echo next", "next", "exit 0"),
        ],
    );
    holds(&mut server, "node", "c", &[("require('fs').readFileSync(0, 'utf8')", "''", "exit 0")]);
}

/// Code without end is interrupted, or killed where it will not hear; either is said, and never is a
/// late answer taken for that of the next call (LIFE-11).
#[test]
fn proto_08_life_11_code_without_end() {
    needs!(Userns, Python, Node);
    let mut server = Server::start(&[]);
    let kept = "timed out after 1 s · state kept";
    let lost = format!("timed out after 1 s · {LOST}");
    for (env, set, get) in [
        ("python", "kept = 41", "print(kept)"),
        ("shell", "kept=41", "echo $kept"),
        ("node", "let kept = 41", "console.log(kept)"),
    ] {
        holds(&mut server, env, env, &[(set, "", "exit 0")]);
        for code in match env {
            "python" => ["while True: pass", "import time\ntime.sleep(1e6)\nprint('late')"],
            "shell" => ["while :; do :; done", "sleep 1000; echo late"],
            _ => [
                "while (true) {}",
                "await new Promise(it => setTimeout(it, 1e6)); console.log('late')",
            ],
        } {
            let (said, trailer) = server.tell_within(env, env, code, 1);
            assert_eq!(trailer, kept, "{env} {code}: {said}");
            assert!(!said.contains("late"), "{env} {code}: {said}");
            holds(&mut server, env, env, &[(get, "41", "exit 0")]);
        }
    }
    let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let (_, trailer) = server.tell_within("python", "deaf", deaf, 1);
    assert_eq!(trailer, lost);
    let (said, trailer) = server.tell("python", "deaf", "print('own answer')");
    assert_eq!(said, "own answer");
    assert!(trailer.starts_with("exit 0 · new session: the state of"), "{trailer}");
}

/// Output without a newline at its end is output.
#[test]
fn proto_09_no_newline_at_the_end() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    holds(
        &mut server,
        "shell",
        "a",
        &[
            ("printf x", "x", "exit 0"),
            ("printf 'a\\nb'", "a\nb", "exit 0"),
            ("printf y >&2", "--- stderr ---\ny", "exit 0"),
        ],
    );
}

/// Source that is not whole is an error, and the next call is whole again.
#[test]
fn proto_10_unterminated_source() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    holds(&mut server, "shell", "a", &[("kept=1", "", "exit 0")]);
    for code in ["echo 'open", "if true", "echo $(", "for i in 1 2; do", "x() {", "case a in"] {
        let (said, trailer) = server.tell("shell", "a", code);
        assert!(trailer.starts_with("exit ") && trailer != "exit 0", "{code}: {said} {trailer}");
        holds(&mut server, "shell", "a", &[("echo $kept", "1", "exit 0")]);
    }
    let (said, _) = server.tell("shell", "a", "cat <<EOF\nbody");
    assert!(said.starts_with("body"), "{said}");
    holds(&mut server, "shell", "a", &[("echo $kept", "1", "exit 0")]);
}

/// No marker of the protocol is among what a shell shows, and what is planted in its pipes ends the
/// session: a call cannot be confused with another.
#[test]
fn proto_12_markers_of_a_shell() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    let (said, trailer) = server.tell("shell", "a", "set -x\necho a; history | tail -5; set +x");
    assert_eq!(trailer, "exit 0", "{said}");
    let hexadecimal =
        |word: &str| word.len() >= 32 && word.bytes().all(|it| it.is_ascii_hexdigit());
    assert!(!said.split(|it: char| !it.is_alphanumeric()).any(hexadecimal), "{said}");
    assert!(!said.contains("done 1 "), "{said}");
    holds(
        &mut server,
        "shell",
        "a",
        &[
            ("(: <>/proc/$PPID/mem) 2>/dev/null || echo closed", "closed", "exit 0"),
            ("ls /proc/$PPID/fd 2>/dev/null || echo closed", "closed", "exit 0"),
        ],
    );
    let planted = "for fd in /proc/$$/fd/*; do n=${fd##*/}; [ $n -gt 2 ] && \
                   (echo \"done 1 00000000000000000000000000000000 0\" >&$n) 2>/dev/null; done; echo x";
    let (_, trailer) = server.tell("shell", "a", planted);
    assert!(trailer.contains(LOST), "{trailer}");
    let (said, trailer) = server.tell("shell", "a", "echo own answer");
    assert_eq!(said, "own answer");
    assert!(trailer.starts_with("exit 0 · new session: the state of"), "{trailer}");
}

/// What a session keeps, and that no other session has it.
#[test]
fn proto_14_state() {
    needs!(Userns, Python, Node);
    let mut server = Server::start(&[]);
    holds(
        &mut server,
        "shell",
        "a",
        &[
            (
                "x=1; export E=2; f() { echo f; }; mkdir d; cd d; echo in >file; sleep 1000 & umask 077",
                "",
                "exit 0",
            ),
            (
                "echo $x $(printenv E) ${PWD##*/} $(f) $(umask) $(jobs -r | wc -l)",
                "1 2 d f 0077 1",
                "exit 0",
            ),
        ],
    );
    holds(
        &mut server,
        "shell",
        "b",
        &[
            (
                "echo \"<$x$E>\" $PWD $(umask) $(jobs -r | wc -l); ls /workspace; type f 2>/dev/null; :",
                "<> /workspace 0022 0",
                "exit 0",
            ),
            ("p=(/proc/[0-9]*); echo ${#p[@]}", "2", "exit 0"),
        ],
    );
    holds(
        &mut server,
        "python",
        "c",
        &[
            (
                "import math as m, os\nx = 1\ndef f(): return m.floor(2.5)\nos.chdir('/tmp')",
                "",
                "exit 0",
            ),
            ("x, f(), os.getcwd()", "(1, 2, '/tmp')", "exit 0"),
        ],
    );
    holds(
        &mut server,
        "python",
        "d",
        &[("'x' in globals(), 'os' in globals()", "(False, False)", "exit 0")],
    );
    holds(
        &mut server,
        "node",
        "e",
        &[
            ("let x = 1; const fs = require('fs'); process.chdir('/tmp')", "", "exit 0"),
            ("[x, typeof fs.statSync, process.cwd()]", "[ 1, 'function', '/tmp' ]", "exit 0"),
        ],
    );
    holds(&mut server, "node", "f", &[("typeof x", "'undefined'", "exit 0")]);
}

/// Calls of one session run in the order in which they came; a session belongs to its environment;
/// names that differ are other sessions.
#[test]
fn proto_16_calls_at_once_and_other_names() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    for id in 1..=20 {
        server.say(id, "shell", "a", &format!("x=$x-{id}; echo $x"), 30);
    }
    let mut expected = String::new();
    for id in 1..=20 {
        expected.push_str(&format!("-{id}"));
        assert_eq!(server.text(id).split('\n').next(), Some(expected.as_str()));
    }
    server.say(21, "python", "a", "1", 30);
    let text = server.text(21);
    assert!(text.contains("the session `a` belongs to the environment `shell`"), "{text}");
    holds(&mut server, "shell", "A", &[("echo \"<$x>\"", "<>", "exit 0")]);
    holds(&mut server, "shell", "a", &[("echo \"<$x>\"", &format!("<{expected}>"), "exit 0")]);
}

/// The agent keeps nothing where code can change it.
#[test]
fn proto_18_removing_everything() {
    needs!(Userns, Python, Node);
    let mut server = Server::start(&[]);
    let remove = "rm -rf /workspace/* /workspace/.[!.]* /tmp/* /dev/shm/* /agent /code 2>/dev/null; \
                  find / -name 'agent*' -type f -writable 2>/dev/null | grep -v ^/proc; rmdir /workspace 2>/dev/null; :";
    holds(
        &mut server,
        "shell",
        "a",
        &[
            ("kept=1", "", "exit 0"),
            (remove, "", "exit 0"),
            ("echo $kept; cd /workspace && ls -A", "1", "exit 0"),
        ],
    );
    let python = format!("import subprocess\n_ = subprocess.run({remove:?}, shell=True)");
    holds(
        &mut server,
        "python",
        "b",
        &[("kept = 1", "", "exit 0"), (&python, "", "exit 0"), ("kept", "1", "exit 0")],
    );
    let node = format!("require('child_process').execSync({remove:?}).toString()");
    holds(
        &mut server,
        "node",
        "c",
        &[("let kept = 1", "", "exit 0"), (&node, "''", "exit 0"), ("kept", "1", "exit 0")],
    );
}

/// RES-31: at most so many sessions, and a sentence for one more; what is not used ends, with
/// everything in it.
#[test]
fn res_31_sessions_are_counted_and_expire() {
    needs!(Userns);
    let idle = (5 * slower()).to_string();
    let variables = [("NIX_SANDBOX_MAX_SESSIONS", "3"), ("SESSION_IDLE_TIMEOUT", idle.as_str())];
    let mut server = Server::start(&variables);
    let mark = format!("13{:07}001", std::process::id());
    let daemon = format!("(setsid sleep {mark} &) ; echo hello");
    for name in ["a", "b", "c"] {
        holds(&mut server, "shell", name, &[(&daemon, "hello", "exit 0")]);
    }
    let (_, refusal) = server.tell("shell", "d", "echo hello");
    assert!(refusal.starts_with("there are already 3 sessions (a, b, c)"), "{refusal}");
    let until = Instant::now() + Duration::from_secs(30) * slower();
    while support::processes_with(&mark).len() != 3 {
        assert!(Instant::now() < until, "{:?}", support::processes_with(&mark));
        std::thread::yield_now();
    }
    // They end by themselves: nobody calls.
    let until = Instant::now() + Duration::from_secs(30) * slower();
    while !support::processes_with(&mark).is_empty() {
        assert!(Instant::now() < until, "{:?}", support::processes_with(&mark));
        std::thread::yield_now();
    }
    holds(&mut server, "shell", "d", &[("echo hello", "hello", "exit 0")]);
}

/// LIFE-02: a session outlives the thread that served its first call.
#[test]
fn life_02_a_session_outlives_the_thread_that_started_it() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    let threads = |server: &Server| {
        fs::read_dir(format!("/proc/{}/task", server.pid())).map_or(0, Iterator::count)
    };
    holds(&mut server, "shell", "a", &[("kept=1", "", "exit 0")]);
    let (most, until) = (threads(&server), Instant::now() + Duration::from_secs(30));
    // The thread that served the call ends when it has been idle for a while.
    while threads(&server) >= most {
        assert!(Instant::now() < until, "no thread of {most} has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    holds(&mut server, "shell", "a", &[("echo $kept", "1", "exit 0")]);
}

/// CFG-01: what is no name of a session is refused before anything is done with it.
#[test]
fn cfg_01_names_of_sessions() {
    needs!(Userns);
    let mut server = Server::start(&[]);
    let long = "x".repeat(65);
    let huge = "x".repeat(10 << 20);
    for name in [
        "../../x", "/etc/x", "a\0b", "", "a\nb", "é", "🦀", "%s%n", "$(id)", "a b", "a/b", "`id`",
        &long, &huge,
    ] {
        server.say(1, "shell", name, "echo ran", 30);
        let text = server.text(1);
        let right = "is no name for a session; use 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`";
        assert!(
            text.contains(right) && text.len() < 1000,
            "{:?}: {text}",
            &name[..name.len().min(80)]
        );
    }
    for name in [".", "..", "-", "--help", "A_b.c-9", &long[1..]] {
        holds(&mut server, "shell", name, &[("echo ran", "ran", "exit 0")]);
    }
}

/// CFG-07: times that cannot be are refused at start, by name.
#[test]
fn cfg_07_times_that_cannot_be() {
    for name in ["SESSION_IDLE_TIMEOUT", "SESSION_MAX_LIFETIME", "NIX_SANDBOX_MAX_SESSIONS"] {
        for value in ["0", "-1", "NaN", "1e99", "inf", "", "soon", "18446744073709551616"] {
            let mut command = support::command();
            command.arg("--stdio").env(name, value).stdin(std::process::Stdio::null());
            let output = command.output().expect("start");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{name}={value:?}: {said}");
            assert!(said.contains(name) && output.stdout.is_empty(), "{name}={value:?}: {said}");
        }
    }
}
