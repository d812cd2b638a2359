//! Environments that Nix built, here in a store made by hand: exactly the closure is seen.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::needs;
use crate::support::{command, directory, exec_with};

/// An interpreter that needs nothing: prints what it was given and what it sees.
const INTERPRETER: &str = r#"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
static void list(const char *at) {
    char *names[64]; int n = 0; DIR *d = opendir(at); struct dirent *e;
    if (!d) { printf("%s: none\n", at); return; }
    while ((e = readdir(d)) && n < 64) if (e->d_name[0] != '.') names[n++] = strdup(e->d_name);
    qsort(names, n, sizeof *names, by_name);
    printf("%s:", at);
    for (int i = 0; i < n; i++) printf(" %s", names[i]);
    printf("\n");
}
int main(int argc, char **argv) {
    char text[256]; FILE *f;
    if (argc > 1 && (f = fopen(argv[1], "r"))) { if (fgets(text, sizeof text, f)) printf("code: %s\n", text); }
    list("/nix/store"); list("/nix"); list("/usr"); list("/lib");
    f = fopen("/nix/store/00000000000000000000000000000002-link/word", "r");
    if (f && fgets(text, sizeof text, f)) printf("through the link: %s\n", text);
    return 0;
}
"#;

const ENV: &str = "00000000000000000000000000000000-env";
const DATA: &str = "00000000000000000000000000000001-data";
const LINK: &str = "00000000000000000000000000000002-link";
const FILE: &str = "00000000000000000000000000000003-file";
const OTHER: &str = "00000000000000000000000000000004-other";

/// A chroot store and an artifact directory beside it. Needs a C compiler.
fn store(metadata: impl Fn(&Path) -> String) -> (tempfile::TempDir, PathBuf) {
    let place = directory();
    let store = place.path().join("root/nix/store");
    let bin = store.join(ENV).join("bin");
    fs::create_dir_all(&bin).expect("bin");
    let source = place.path().join("interpreter.c");
    fs::write(&source, INTERPRETER).expect("source");
    let made = Command::new("cc")
        .args(["-static", "-O1", "-o"])
        .arg(bin.join("bash"))
        .arg(&source)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "cc -static");
    for name in [DATA, OTHER] {
        fs::create_dir(store.join(name)).expect("path");
    }
    fs::write(store.join(DATA).join("word"), "data").expect("word");
    symlink(DATA, store.join(LINK)).expect("link");
    fs::write(store.join(FILE), "a file").expect("file");
    let artifacts = place.path().join("artifacts");
    fs::create_dir_all(artifacts.join("hand-made")).expect("artifact");
    let text = metadata(&place.path().join("root"));
    fs::write(artifacts.join("hand-made/metadata.json"), text).expect("metadata");
    (place, artifacts)
}

fn metadata(root: &Path) -> String {
    let closure: Vec<String> =
        [ENV, DATA, LINK, FILE].iter().map(|name| format!("\"/nix/store/{name}\"")).collect();
    format!(
        r#"{{"name": "hand-made", "interpreter_type": "bash", "timeout_seconds": 7, "memory_mb": 64,
            "env": "/nix/store/{ENV}", "store_root": {root:?}, "closure": [{}]}}"#,
        closure.join(", ")
    )
}

#[test]
fn only_the_closure_is_seen_its_directories_files_and_links() {
    needs!(Userns, Compiler);
    let (place, artifacts) = store(metadata);
    let code = place.path().join("code");
    fs::write(&code, "the code").expect("code");
    let mut command = command();
    command.env("NIX_SANDBOX_DIR", &artifacts).args(["run", "--env", "hand-made"]).arg(&code);
    let output = command.output().expect("run");
    let expected = format!(
        "code: the code\n/nix/store: {ENV} {DATA} {LINK} {FILE}\n/nix: store\n/usr: none\n/lib: none\n\
         through the link: data\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
}

#[test]
fn limits_of_the_predecessor_s_metadata_hold() {
    needs!(Userns, Compiler);
    let (_place, artifacts) = store(metadata);
    let mut command = command();
    command.env("NIX_SANDBOX_DIR", &artifacts).args(["plan", "--json", "--env", "hand-made"]);
    let plan: serde_json::Value =
        serde_json::from_slice(&command.output().expect("plan").stdout).expect("JSON");
    assert_eq!(plan["limits"]["time_ms"], 7000);
    assert_eq!(plan["limits"]["memory"], 64 << 20);
}

#[test]
fn a_closure_without_one_of_its_paths_says_so() {
    needs!(Userns, Compiler);
    let (place, artifacts) = store(metadata);
    fs::remove_file(place.path().join("root/nix/store").join(FILE)).expect("collected");
    let mut command = command();
    command.env("NIX_SANDBOX_DIR", &artifacts).args(["exec", "--env", "hand-made", "--", "bash"]);
    let output = command.output().expect("exec");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(FILE) && said.contains("garbage collected"), "{said}");
}

#[test]
fn a_broken_artifact_is_skipped_with_its_name_and_the_reason() {
    needs!(Userns);
    let place = directory();
    for (name, text) in [
        ("no-json", "{".to_owned()),
        ("wrong-type", r#"{"name": 3, "interpreter_type": "bash"}"#.to_owned()),
        ("bad-name", r#"{"name": "../x", "interpreter_type": "bash"}"#.to_owned()),
    ] {
        fs::create_dir(place.path().join(name)).expect("artifact");
        fs::write(place.path().join(name).join("metadata.json"), text).expect("metadata");
    }
    let open = place.path().join("world-writable");
    fs::create_dir(&open).expect("artifact");
    fs::write(open.join("metadata.json"), "{}").expect("metadata");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("mode");
    symlink("/", place.path().join("root")).expect("link");
    let mut command = command();
    let output = command.env("NIX_SANDBOX_DIR", place.path()).arg("envs").output().expect("envs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    for name in ["no-json", "wrong-type", "bad-name", "world-writable", "root"] {
        let told = said.lines().any(|line| line.contains("skipped") && line.contains(name));
        assert!(told, "{name}: {said}");
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(listed.starts_with("shell "), "{listed}");
}

#[test]
fn a_name_of_one_s_own_replaces_a_preset() {
    needs!(Userns, Compiler);
    let own = |root: &Path| metadata(root).replace("\"hand-made\"", "\"shell\"");
    let (_place, artifacts) = store(own);
    let ran = exec_with("shell", &[("NIX_SANDBOX_DIR", &artifacts)], &[], &["bash"]);
    assert!(ran.stdout.starts_with("/nix/store: "), "{ran:?}");
}
