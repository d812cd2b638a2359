//! Every other test of this suite once more with bubblewrap: what differs is listed here, with its
//! reason, and differs indeed. `BLESS=1` writes `docs/evidence/backends.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use crate::needs;
use crate::support::directory;

/// The tests that fail with bubblewrap, and why.
const DIFFERENCES: [(&str, &str); 10] = [
    (
        "endings::the_walls_that_stood_are_listed_with_each_result",
        "they are listed; but pid 1 can be looked into, so the mounts are told as weaker",
    ),
    (
        "files::dev_is_our_own_and_minimal",
        "bubblewrap makes one link more, `/dev/core` to `/proc/kcore`, which is masked",
    ),
    (
        "files::kernel_knobs_cannot_be_written",
        "none can; but bubblewrap's limit of user namespaces stands one namespace above, so inside \
         the number that is read is another",
    ),
    (
        "identity::pid_1_tells_nothing_of_who_started_it",
        "pid 1 is `bwrap`, and its command line names the payload's; it holds nothing of the host",
    ),
    (
        "identity::pid_1_wears_two_filters",
        "bubblewrap's pid 1 wears the payload's and none of its own",
    ),
    (
        "identity::the_environment_is_exactly_the_documented_allow_list",
        "bubblewrap sets `PWD` besides",
    ),
    (
        "identity::the_payload_never_runs_as_host_uid_0",
        "it does not; but bubblewrap nests two user namespaces, so the map that is read inside \
         names the ids of the one between",
    ),
    (
        "processes::pid_1_cannot_be_signalled_traced_or_looked_into",
        "it cannot be signalled or traced; it can be looked into: there is no Landlock, and `bwrap` \
         stays dumpable. Only what the payload has too is to be seen",
    ),
    (
        "project::as_root_the_sandbox_of_another_s_project_runs_as_its_owner",
        "it does; the map that is read inside names the ids of the namespace between",
    ),
    (
        "project::symbolic_links_in_the_project_lead_nowhere_outside",
        "they do not; but a link to `/proc/1/root` leads to the sandbox's own root, for pid 1 can \
         be looked into",
    ),
];

/// What no test of this suite asks and still differs; told in the evidence.
const BESIDES: [&str; 4] = [
    "An exit code of 129 to 192 is told as a signal: bubblewrap, like a shell, has one number for \
     both.",
    "A file without `#!` that no loader knows is run by `/bin/sh`, and why a program could not be \
     executed is told on its standard error; the engine names the errno.",
    "There is no terminal of one's own (`exec` on a terminal says so; `--no-tty` helps) and no \
     `/outputs`.",
    "With a cgroup, bubblewrap's own process is one of the processes that the limit counts.",
];

const EVIDENCE: &str = include_str!("../../docs/evidence/backends.md");

/// What this file itself holds.
fn is_own(name: &str) -> bool {
    name.starts_with("backends::")
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("this program"))
}

/// The names of all tests but those of this file.
fn names() -> BTreeSet<String> {
    let listed = this_program().args(["--list", "--format=terse"]).output().expect("list");
    let text = String::from_utf8(listed.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| !is_own(name)).map(str::to_owned).collect()
}

#[test]
fn with_the_jail_exactly_the_listed_tests_differ() {
    if std::env::var_os("SANDBOX_TEST_BACKEND").is_some() {
        return;
    }
    needs!(Userns, Bubblewrap);
    let place = directory();
    let lacks = place.path().join("lacks");
    std::fs::write(&lacks, "").expect("lacks");
    let run = this_program()
        .args(["--skip=backends::", "--test-threads=2", "--format=pretty", "--color=never"])
        .env("SANDBOX_TEST_BACKEND", "jail")
        .env("SANDBOX_LACKS", &lacks)
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("once more");
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let ended = |how: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(how));
        lines.map(str::to_owned).collect()
    };
    let (same, different) = (ended(" ... ok"), ended(" ... FAILED"));
    assert_eq!(same.union(&different).cloned().collect::<BTreeSet<_>>(), names(), "{text}");
    let listed: BTreeSet<String> = DIFFERENCES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let lacking = std::fs::read_to_string(&lacks).expect("lacks");
    assert!(!lacking.contains("userns "), "bubblewrap makes no sandbox here");
    // What a busy machine spoilt is asked once more, alone.
    let unlisted: Vec<_> = different.difference(&listed).filter(|it| differs_alone(it)).collect();
    assert!(unlisted.is_empty(), "differ and are not listed: {unlisted:?}\n{text}");
    let alike: Vec<_> = listed.intersection(&same).filter(|it| !lacking.contains(*it)).collect();
    assert!(alike.is_empty(), "are listed and do not differ: {alike:?}");
}

fn differs_alone(name: &str) -> bool {
    let mut command = this_program();
    command.args(["--exact", name]).env("SANDBOX_TEST_BACKEND", "jail");
    !command.output().expect("once more").status.success()
}

#[test]
fn the_evidence_tells_of_every_test_and_every_difference() {
    let text = evidence();
    if std::env::var_os("BLESS").is_some() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/backends.md");
        std::fs::write(place, &text).expect("write the evidence");
    } else {
        assert_eq!(EVIDENCE, text, "BLESS=1 cargo test --test conformance backends::the_evidence");
    }
}

fn evidence() -> String {
    let names = names();
    let mut text = format!(
        "# The engine and bubblewrap\n\n\
         Generated by `tests/conformance/backends.rs`, which runs every test of the conformance suite\n\
         with `NIX_SANDBOX_BACKEND=jail` too and fails where this table is not true; do not edit.\n\n\
         {} behaviours, each asserted with the engine; {} of them are the same with bubblewrap.\n\n\
         | behaviour | with bubblewrap | why |\n|---|---|---|\n",
        names.len(),
        names.len() - DIFFERENCES.len(),
    );
    for name in &names {
        let why = DIFFERENCES.iter().find(|(listed, _)| listed == name);
        let (how, why) = why.map_or(("the same", ""), |(_, why)| ("differs", why));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {how} | {why} |");
    }
    text.push_str("\nBesides, without a test in this suite:\n\n");
    BESIDES.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    text
}
