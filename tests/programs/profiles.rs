//! The profiles `strict` and `compat`: that real programs run, and the line that each one differs in.

use std::fs;

use crate::support::{Ran, directory, exec_with};
use crate::{needs, says};

fn under(profile: &str, environment: &str, words: &[&str]) -> Ran {
    let here = directory();
    let settings = here.path().join("settings.toml");
    fs::write(&settings, format!("profile = \"{profile}\"\n")).expect("settings");
    exec_with(environment, &[("NIX_SANDBOX_CONFIG", &settings)], &["--timeout", "120"], words)
}

/// What each profile is for, asked of the kernel: a named socket, System V IPC, ptrace, native AIO.
const ASK: &str = "
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def ask(name, *words):
    done = getattr(libc, name)(*words) != -1
    return 'yes' if done else errno.errorcode[ctypes.get_errno()]
try: socket.socket(socket.AF_UNIX); unix = 'yes'
except OSError as error: unix = errno.errorcode[error.errno]
context = ctypes.c_ulong(0)
io_setup = {'x86_64': 206, 'aarch64': 0}[os.uname().machine]
print(unix, ask('shmget', 0, 4096, 0o1600), ask('ptrace', 0, 0, 0, 0), ask('syscall', io_setup, 1, ctypes.byref(context)))
";

#[test]
fn each_profile_differs_in_its_lines_only() {
    needs!(Userns, Python);
    for (profile, answer) in [
        ("default", "yes yes EPERM ENOSYS\n"),
        ("strict", "EAFNOSUPPORT EPERM EPERM ENOSYS\n"),
        ("compat", "yes yes yes yes\n"),
    ] {
        says(&under(profile, "python", &["python3", "-c", ASK]), answer);
    }
}

#[test]
fn python_computes_in_processes_and_threads_under_each() {
    needs!(Userns, Python);
    let program = "
import asyncio, multiprocessing, sqlite3, subprocess, threading
with multiprocessing.get_context('fork').Pool(2) as pool: print(sum(pool.map(abs, range(-9, 9))))
thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()
print(sqlite3.connect('a.db').execute('select 6 * 7').fetchone())
print(subprocess.check_output(['echo', 'process']), asyncio.run(asyncio.sleep(0, 'loop')))
";
    for profile in ["strict", "compat"] {
        let ran = under(profile, "python", &["python3", "-c", program]);
        says(&ran, "81\nthread\n(42,)\nb'process\\n' loop\n");
    }
}

#[test]
fn node_computes_in_threads_and_processes_under_each() {
    needs!(Userns, Node);
    let program = "
const { Worker } = require('worker_threads'), { execFileSync } = require('child_process');
process.stdout.write(execFileSync('echo', ['process']));
new Worker('require(\"worker_threads\").parentPort.postMessage(42)', { eval: true }).on('message', n => console.log(n));
";
    for profile in ["strict", "compat"] {
        says(&under(profile, "node", &["node", "-e", program]), "process\n42\n");
    }
}

#[test]
fn the_shell_pipes_and_waits_under_each() {
    needs!(Userns);
    for profile in ["strict", "compat"] {
        let ran = under(
            profile,
            "shell",
            &["sh", "-c", "seq 3 | sort -r | tr '\\n' ' '; sleep 0 & wait $!; echo $?"],
        );
        says(&ran, "3 2 1 0\n");
    }
}
