//! Environments that bring a jail of their own, here by hand: it is used, and not believed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::needs;

/// Prints its arguments, what stands in the file that the last one names, and a variable.
const INTERPRETER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char text[256] = ""; FILE *f;
    for (int i = 1; i < argc; i++) printf("%s ", argv[i]);
    if (argc > 1 && (f = fopen(argv[argc - 1], "r"))) fgets(text, sizeof text, f);
    printf("%s %s\n", text, getenv("LANG"));
    return 0;
}
"#;

const ENV: &str = "00000000000000000000000000000000-env";
const DATA: &str = "00000000000000000000000000000001-data";
const JAIL: &str = "00000000000000000000000000000002-jail";

/// What a jail is like that does all that it should.
const GOOD: [&str; 12] = [
    "--clearenv --proc /proc --dev /dev --setenv LANG C",
    "--uid 1000 --gid 1000 --cap-drop ALL --disable-userns",
    "--hostname sandbox --chdir /workspace",
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup",
    "--new-session --die-with-parent",
    "--ro-bind STORE/ENV STORE/ENV --ro-bind STORE/DATA STORE/DATA",
    "--args \"$NIX_SANDBOX_ARGS_FD\" --remount-ro /",
];

/// A store that lies where sandboxes see it, and an artifact with jails. Not below `/tmp`, which each
/// sandbox makes itself.
struct World {
    place: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let place = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in("/var/tmp")
            .expect("directory");
        let world = Self { place };
        let bin = world.store().join(ENV).join("bin");
        fs::create_dir_all(&bin).expect("bin");
        let source = world.place.path().join("interpreter.c");
        fs::write(&source, INTERPRETER).expect("source");
        let made =
            Command::new("cc").args(["-static", "-o"]).arg(bin.join("bash")).arg(&source).status();
        assert!(made.is_ok_and(|status| status.success()), "cc -static");
        fs::create_dir(world.store().join(DATA)).expect("data");
        fs::create_dir_all(world.store().join(JAIL).join("bin")).expect("jail");
        let artifact = world.artifacts().join("hand-made");
        fs::create_dir_all(artifact.join("bin")).expect("artifact");
        for name in ["run", "session-run"] {
            symlink(world.program(), artifact.join("bin").join(name)).expect("link");
        }
        let metadata = json!({
            "name": "hand-made", "interpreter_type": "bash", "jail": 1,
            "env": world.store().join(ENV), "store_dir": world.store(), "store_root": "/",
            "closure": [world.store().join(ENV), world.store().join(DATA)],
        });
        fs::write(artifact.join("metadata.json"), metadata.to_string()).expect("metadata");
        world
    }

    fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    fn artifacts(&self) -> PathBuf {
        self.place.path().join("artifacts")
    }

    fn program(&self) -> PathBuf {
        self.store().join(JAIL).join("bin/jail")
    }

    /// Makes the jail of these words and a command, and runs code in it.
    fn run(&self, words: &[&str], command: &str) -> Output {
        self.jail(words, command);
        self.code().output().expect("run")
    }

    fn jail(&self, words: &[&str], command: &str) {
        let store = self.store();
        let text = format!("#!/bin/sh\nexec bwrap {} -- {command}\n", words.join(" "))
            .replace("STORE/ENV", &store.join(ENV).to_string_lossy())
            .replace("STORE/DATA", &store.join(DATA).to_string_lossy());
        fs::write(self.program(), text).expect("jail");
        fs::set_permissions(self.program(), fs::Permissions::from_mode(0o755)).expect("chmod");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = crate::support::command();
        command.env("NIX_SANDBOX_DIR", self.artifacts()).env("NIX_SANDBOX_BACKEND", "jail");
        command.args(words).stdin(Stdio::null());
        command
    }

    fn code(&self) -> Command {
        let code = self.place.path().join("code");
        fs::write(&code, "the code").expect("code");
        let mut command = self.command(&["run", "--json", "--env", "hand-made"]);
        command.arg(code);
        command
    }

    /// The jail that was changed so is not used, and why.
    fn refused(&self, from: &str, to: &str, says: &str) {
        let words = GOOD.join(" ");
        assert!(words.contains(from), "{from}");
        let ran = self.run(&[&words.replacen(from, to, 1)], "STORE/ENV/bin/bash \"$@\"");
        self.is_refused(&ran, says);
    }

    fn is_refused(&self, ran: &Output, says: &str) {
        let program = self.program();
        let says = format!("run code in the jail of {}, which {says}: EPERM", program.display());
        let said = String::from_utf8_lossy(&ran.stderr);
        let stdout = String::from_utf8_lossy(&ran.stdout);
        assert_eq!((ran.status.code(), &*stdout), (Some(125), ""), "{said}");
        assert!(said.contains(&says), "{said}");
    }
}

fn wall(ran: &Output, name: &str) -> String {
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let walls = said["enforced"].as_array().expect("walls");
    let wall = walls.iter().find(|wall| wall["wall"] == name).expect("wall");
    wall["detail"].as_str().expect("detail").to_owned()
}

fn stdout(ran: &Output) -> String {
    let said: Value = serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ran.stderr)));
    said["stdout"]["text"].as_str().expect("text").to_owned()
}

#[test]
fn code_runs_in_the_jail_that_an_environment_brings_and_the_result_says_so() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    let ran = world.run(&GOOD, "STORE/ENV/bin/bash \"$@\"");
    assert_eq!(stdout(&ran), "/code/main.sh the code C.UTF-8\n");
    let own = format!("by the environment's own jail, {};", world.program().display());
    assert!(wall(&ran, "namespaces").contains(&own), "{}", wall(&ran, "namespaces"));
}

#[test]
fn a_command_runs_in_bubblewrap_as_the_plan_says_and_the_result_says_so() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    let program = world.store().join(ENV).join("bin/bash");
    let words = ["exec", "--json", "--env", "hand-made", "--", &program.to_string_lossy(), "a"];
    world.jail(&GOOD, "STORE/ENV/bin/bash \"$@\"");
    let ran = world.command(&words).output().expect("exec");
    assert_eq!(stdout(&ran), "a  C.UTF-8\n");
    assert!(wall(&ran, "namespaces").contains("by bubblewrap "), "{ran:?}");
}

#[test]
fn a_jail_that_shows_keeps_or_runs_something_else_is_refused() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    world.refused("--proc", "--ro-bind / /host --proc", "shows /host");
    let writable = world.store().join(DATA);
    let says = format!("leaves {} writable", writable.display());
    world.refused("--ro-bind STORE/DATA", "--bind STORE/DATA", &says);
    world.refused("--unshare-net", "", "leaves the net namespace as it is");
    world.refused("--unshare-ipc", "", "leaves the ipc namespace as it is");
    world.refused("--uid 1000", "--uid 1001", "maps another uid than 1000");
    world.refused("--gid 1000", "--gid 1001", "maps another gid than 1000");
    let held = "keeps CapInh: 0000000000000080";
    world.refused("--cap-drop ALL", "--cap-add CAP_SETUID", held);
    let other = world.run(&GOOD, "STORE/ENV/bin/bash -x \"$@\"");
    world.is_refused(&other, "runs another command than the plan's");
}

#[test]
fn a_jail_that_lacks_a_part_of_the_closure_is_refused() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    let words = GOOD.join(" ").replace("--ro-bind STORE/DATA STORE/DATA", "");
    let ran = world.run(&[&words], "STORE/ENV/bin/bash \"$@\"");
    let said = String::from_utf8_lossy(&ran.stderr);
    let says = format!("check what is mounted at {}: ENOENT", world.store().join(DATA).display());
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(125), &b""[..]), "{said}");
    assert!(said.contains(&says), "{said}");
}

#[test]
fn a_jail_that_does_not_listen_never_sees_the_code() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    let seen = world.place.path().join("seen");
    fs::write(&seen, "").expect("seen");
    fs::set_permissions(&seen, fs::Permissions::from_mode(0o666)).expect("chmod");
    let words = GOOD.join(" ").replace("--args \"$NIX_SANDBOX_ARGS_FD\"", "--tmpfs /workspace");
    let ran = world.run(&[&words], &format!("STORE/ENV/bin/bash \"$@\" >>{}", seen.display()));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(125), "{said}");
    assert!(said.contains("it ended before the sandbox stood"), "{said}");
    // It was there, twice: also to ask why it failed.
    assert_eq!(fs::read_to_string(&seen).expect("seen"), "/code/main.sh  C\n/code/main.sh  C\n");
}

#[test]
fn a_plan_that_no_jail_can_hold_is_bubblewrap_s() {
    needs!(Userns, Bubblewrap, Compiler);
    let world = World::new();
    let settings = world.place.path().join("settings.toml");
    fs::write(&settings, "proc = \"none\"\n").expect("settings");
    world.jail(&GOOD, "STORE/ENV/bin/bash \"$@\"");
    let ran = world.code().env("NIX_SANDBOX_CONFIG", &settings).output().expect("run");
    assert_eq!(stdout(&ran), "/code/main.sh the code C.UTF-8\n");
    assert!(wall(&ran, "namespaces").contains("by bubblewrap "), "{ran:?}");
}
