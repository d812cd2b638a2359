//! Every other test of this suite once more with bubblewrap, and in the jails that Nix built: what
//! differs is listed here, with its reason, and differs indeed. `BLESS=1` writes
//! `docs/evidence/backends.md`.

mod jails;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use crate::needs;
use crate::support::directory;

/// The tests that fail with bubblewrap, whoever calls it, and why.
const DIFFERENCES: [(&str, &str); 13] = [
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
        "identity::descriptors_that_we_inherited_are_not_handed_on",
        "they are not; but pid 1 can be looked into: it holds the payload's streams and an event \
         counter of bubblewrap's own",
    ),
    (
        "identity::inherited_values_are_fixed",
        "they are; but bubblewrap is handed each small file and each cover of `/proc` by a descriptor, so \
         where no more than 64 files may be open it is refused with a sentence",
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
        "limits::inotify_instances_are_few",
        "the limit is the user namespace's, and bubblewrap lets nobody write it",
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

/// The tests that run no code but commands, or nothing at all: a jail of Nix has no part in them.
const WITHOUT_CODE: [&str; 12] = [
    "artifacts::a_broken_artifact_is_skipped_with_its_name_and_the_reason",
    "artifacts::a_closure_without_one_of_its_paths_says_so",
    "artifacts::a_name_of_one_s_own_replaces_a_preset",
    "artifacts::limits_of_the_predecessor_s_metadata_hold",
    "artifacts::only_the_closure_is_seen_its_directories_files_and_links",
    "endings::a_program_that_cannot_be_started_is_told_apart",
    "limits::a_required_wall_that_cannot_be_had_refuses_the_run",
    "limits::bad_limits_are_refused_with_a_sentence",
    "processes::sigkill_of_the_program_leaves_no_process",
    "project::a_bad_project_directory_is_refused_at_start_by_name",
    "project::a_bad_project_place_is_refused_at_start_by_name",
    "results::exec_passes_three_mebibytes_through_unchanged",
];

/// What no test of this suite asks and still differs; told in the evidence.
const BESIDES: [&str; 7] = [
    "An exit code of 129 to 192 is told as a signal: bubblewrap, like a shell, has one number for \
     both.",
    "A file without `#!` that no loader knows is run by `/bin/sh`, and why a program could not be \
     executed is told on its standard error; the engine names the errno.",
    "There is no terminal of one's own (`exec` on a terminal says so; `--no-tty` helps) and no \
     `/outputs`.",
    "With a cgroup, bubblewrap's own process is one of the processes that the limit counts.",
    "A jail of Nix shows one path more in the store: the list of the packages whose closure it shows. A \
     path of the closure that is a symbolic link is shown as what it leads to.",
    "A jail of Nix runs code and sessions. Where it cannot do what the plan says (a command, an empty \
     `/proc`), where its store is a chroot store, where its artifact does not say that it takes the server's \
     word (`\"jail\": 1` in `metadata.json`), and where bubblewrap stands in for the engine (`auto`), \
     bubblewrap is called from the plan. The first of the `enforced` walls says which it was.",
    "A jail of Nix is compared with the plan before code runs in it: namespaces, ids, capabilities, \
     command, mounts. A difference refuses the run.",
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

/// Every other test of this suite once more, in another way.
struct Again {
    variables: Vec<(&'static str, &'static str)>,
    same: BTreeSet<String>,
    different: BTreeSet<String>,
    /// What this host lacked, and for which tests.
    lacking: String,
    /// Those that ran code in place of scripts.
    code: BTreeSet<String>,
    text: String,
}

impl Again {
    fn run(variables: &[(&'static str, &'static str)]) -> Self {
        let place = directory();
        let lacks = place.path().join("lacks");
        let tally = place.path().join("tally");
        std::fs::write(&lacks, "").expect("lacks");
        std::fs::write(&tally, "").expect("tally");
        let run = this_program()
            .args(["--skip=backends::", "--test-threads=2", "--format=pretty", "--color=never"])
            .envs(variables.iter().copied())
            .env("SANDBOX_LACKS", &lacks)
            .env("SANDBOX_TEST_TALLY", &tally)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("once more");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let ended = |how: &str| -> BTreeSet<String> {
            let ended =
                |line: &'_ str| Some(line.strip_prefix("test ")?.strip_suffix(how)?.to_owned());
            text.lines().filter_map(ended).collect()
        };
        let (same, different) = (ended(" ... ok"), ended(" ... FAILED"));
        assert_eq!(same.union(&different).cloned().collect::<BTreeSet<_>>(), names(), "{text}");
        let lacking = std::fs::read_to_string(&lacks).expect("lacks");
        assert!(!lacking.contains("userns "), "no sandbox is made here");
        let code = std::fs::read_to_string(&tally).expect("tally");
        let code = code.lines().map(str::to_owned).collect();
        Self { variables: variables.to_owned(), same, different, lacking, code, text }
    }

    /// Exactly the listed tests have failed.
    fn differs_in(&self, listed: &BTreeSet<String>) {
        // What a busy machine spoilt is asked once more, alone.
        let unlisted = self.different.difference(listed).filter(|it| self.differs_alone(it));
        let unlisted: Vec<_> = unlisted.collect();
        assert!(unlisted.is_empty(), "differ and are not listed: {unlisted:?}\n{}", self.text);
        let alike = listed.intersection(&self.same).filter(|it| !self.lacking.contains(*it));
        let alike: Vec<_> = alike.collect();
        assert!(alike.is_empty(), "are listed and do not differ: {alike:?}");
    }

    fn differs_alone(&self, name: &str) -> bool {
        let mut command = this_program();
        command.args(["--exact", name]).envs(self.variables.iter().copied());
        !command.output().expect("once more").status.success()
    }
}

fn is_once_more() -> bool {
    ["SANDBOX_TEST_BACKEND", "SANDBOX_TEST_AS_CODE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

fn listed() -> BTreeSet<String> {
    DIFFERENCES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn with_bubblewrap_exactly_the_listed_tests_differ() {
    if is_once_more() {
        return;
    }
    needs!(Userns, Bubblewrap);
    Again::run(&[("SANDBOX_TEST_BACKEND", "jail")]).differs_in(&listed());
}

/// Asked for by tests/nix, which knows that there are such jails.
#[test]
fn in_the_jails_of_nix_exactly_the_listed_tests_differ() {
    if is_once_more() || std::env::var_os("SANDBOX_TEST_JAILS").is_none() {
        return;
    }
    needs!(Userns, Bubblewrap);
    let as_code = ("SANDBOX_TEST_AS_CODE", "1");
    Again::run(&[as_code]).differs_in(&BTreeSet::new());
    let again = Again::run(&[as_code, ("SANDBOX_TEST_BACKEND", "jail")]);
    again.differs_in(&listed());
    let without = names().into_iter().filter(|it| !again.code.contains(it));
    let without: Vec<_> = without.filter(|it| !again.lacking.contains(it)).collect();
    assert_eq!(without, WITHOUT_CODE);
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
        "# The engine, bubblewrap, and the jails of Nix\n\n\
         Generated by `tests/conformance/backends.rs`, which runs every test of the conformance suite\n\
         with `NIX_SANDBOX_BACKEND=jail` too and fails where this table is not true; do not edit.\n\n\
         {} behaviours, each asserted with the engine; {} of them are the same with bubblewrap.\n\n\
         - host: bubblewrap, called from the plan, with programs of the host.\n\
         - closure: the same with environments that Nix built (`tests/nix/run`).\n\
         - jail.nix: with each script run as code, in the artifact's own jail (`bin/run`). The engine passes\n  \
         every test so, too. `-`: the test runs no code, and jails run nothing else.\n\n\
         | behaviour | host | closure | jail.nix | why |\n|---|---|---|---|---|\n",
        names.len(),
        names.len() - DIFFERENCES.len(),
    );
    for name in &names {
        let why = DIFFERENCES.iter().find(|(listed, _)| listed == name);
        let (how, why) = why.map_or(("the same", ""), |(_, why)| ("differs", why));
        let jail = if WITHOUT_CODE.contains(&&**name) { "-" } else { how };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {how} | {how} | {jail} | {why} |");
    }
    text.push_str("\nBesides, without a test in this suite:\n\n");
    BESIDES.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    text
}
