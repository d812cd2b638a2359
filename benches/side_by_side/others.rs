//! Other sandboxes, those that are installed and work here. Each has the same namespaces and shows the
//! same places, as far as it can; what else it does is what it does if nobody asks.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contestants::{Contestant, at, contestant, outside, spawn};
use crate::workplace::Workplace;

/// Makes the command of each round.
type Commands = Box<dyn FnMut() -> Command + Send>;

/// With a closure of so many paths.
pub(crate) fn installed<'a>(workplace: &Workplace, paths: usize) -> Vec<Contestant<'a>> {
    let all: [(&str, Commands); 5] = [
        ("nsjail", nsjail(workplace, paths)),
        ("crun", container("crun", &["--cgroup-manager=disabled"], workplace, paths)),
        ("runc", container("runc", &[], workplace, paths)),
        ("firejail", firejail(workplace)),
        ("hakoniwa", hakoniwa(workplace, paths)),
    ];
    let works = |(name, mut next): (&str, Commands)| match tried(&mut next()) {
        Ok(()) => Some(contestant(name, move || spawn(&mut next()))),
        Err(why) => {
            eprintln!("without {name}: {why}");
            None
        }
    };
    all.into_iter().filter_map(works).collect()
}

fn tried(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    if output.status.success() { Ok(()) } else { Err(format!("{} {last}", output.status)) }
}

/// What is shown, and where.
fn binds(workplace: &Workplace, paths: usize) -> Vec<(String, String)> {
    let text = |path: &Path| path.display().to_string();
    let store = (0..paths).map(|number| (text(&workplace.store_path(number)), text(&at(number))));
    store.chain([(text(&workplace.bin()), "/project".to_owned())]).collect()
}

fn nsjail(workplace: &Workplace, paths: usize) -> Commands {
    let mut words: Vec<String> = ["-Mo", "--really_quiet"].map(str::to_owned).to_vec();
    for (from, to) in binds(workplace, paths) {
        words.extend(["-R".to_owned(), format!("{from}:{to}")]);
    }
    words.extend(["-T", "/tmp", "-T", "/workspace", "--", "/project/true"].map(str::to_owned));
    always("nsjail", words)
}

fn hakoniwa(workplace: &Workplace, paths: usize) -> Commands {
    let words = "run --unshare-all --devfs /dev --tmpfs /tmp --tmpfs /workspace";
    let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    for (from, to) in binds(workplace, paths) {
        words.extend(["-b".to_owned(), format!("{from}:{to}")]);
    }
    words.extend(["--", "/project/true"].map(str::to_owned));
    always("hakoniwa", words)
}

/// Shows all of the host, and runs nothing below `/var`.
fn firejail(workplace: &Workplace) -> Commands {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let program = directory.path().join("true");
    std::fs::copy(workplace.program(), &program).expect("a copy");
    let words = ["--quiet", "--noprofile", "--net=none", "--ipc-namespace", "--"];
    Box::new(move || {
        let mut command = Command::new("firejail");
        command.args(words).arg(directory.path().join("true"));
        command
    })
}

/// A rootless container of a runtime that keeps to the OCI's specification.
fn container(
    program: &'static str,
    options: &[&str],
    workplace: &Workplace,
    paths: usize,
) -> Commands {
    let bundle = tempfile::tempdir_in("/var/tmp").expect("a directory");
    std::fs::create_dir(bundle.path().join("rootfs")).expect("a root");
    std::fs::create_dir(bundle.path().join("state")).expect("a place for its state");
    let config = config(workplace, paths).to_string();
    std::fs::write(bundle.path().join("config.json"), config).expect("a configuration");
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let mut number = 0;
    Box::new(move || {
        number += 1;
        one_container(program, &options, &bundle, number)
    })
}

fn one_container(program: &str, options: &[String], bundle: &TempDir, number: u32) -> Command {
    let mut command = Command::new(program);
    command.arg("--root").arg(bundle.path().join("state")).args(options);
    command.args(["run", "--bundle"]).arg(bundle.path());
    command.arg(format!("bench-{}-{number}", std::process::id()));
    command
}

fn config(workplace: &Workplace, paths: usize) -> Value {
    let tmpfs = |at: &str| json!({"destination": at, "type": "tmpfs", "source": "tmpfs"});
    let bind = |(from, to): (String, String)| {
        let options = ["rbind", "ro", "nosuid", "nodev"];
        json!({"destination": to, "type": "none", "source": from, "options": options})
    };
    let mut mounts = vec![json!({"destination": "/proc", "type": "proc", "source": "proc"})];
    mounts.extend(["/dev", "/tmp", "/workspace"].map(tmpfs));
    mounts.extend(binds(workplace, paths).into_iter().map(bind));
    let namespaces = ["user", "pid", "network", "mount", "ipc", "uts", "cgroup"];
    let ids = outside();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": ["/project/true"], "cwd": "/",
            "noNewPrivileges": true, "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {
            "uidMappings": [{"containerID": 0, "hostID": ids.uid, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": ids.gid, "size": 1}],
            "namespaces": namespaces.map(|kind| json!({"type": kind})),
        },
    })
}

fn always(program: &'static str, words: Vec<String>) -> Commands {
    Box::new(move || {
        let mut command = Command::new(program);
        command.args(&words);
        command
    })
}
