//! `seccomp/golden.*.txt`: what becomes of each number, for readers of a change.

use super::super::decision::{self, Decision};
use super::super::{document, files, layout};
use super::{ARCHES, WEARERS};
use crate::policy::{Arch, Profile, Verdict, Wearer};
use std::fmt::Write as _;
use std::path::Path;
use syscalls::{aarch64, x86_64};

/// Set to write the tables anew: `BLESS=1 cargo test --lib policy::tests::golden`.
const BLESS: &str = "BLESS";

#[test]
fn the_golden_tables_are_up_to_date() {
    for arch in ARCHES {
        let name = match arch {
            Arch::X86_64 => "golden.x86_64.txt",
            Arch::Aarch64 => "golden.aarch64.txt",
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seccomp").join(name);
        let table = table(arch);
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(&path, &table).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        for (now, before) in table.lines().zip(kept.lines().chain(std::iter::repeat(""))) {
            assert_eq!(now, before, "{name}: if meant, run the test with {BLESS}=1");
        }
        assert_eq!(table.len(), kept.len(), "{name}: run with {BLESS}=1");
    }
}

fn table(arch: Arch) -> String {
    let find = |name: &str| files::find(name, Profile::Default);
    let policy = document::load(files::root(Wearer::Base), arch, &find).unwrap();
    let ranges = decision::ranges(&policy);
    let length = layout::program(arch, &ranges).unwrap().instructions().len();
    let mut table = format!(
        "# Default profile, base wearer, {length} instructions.\n\
         # Several words: it depends on the arguments.\n"
    );
    for number in 0..=600 {
        let range = ranges.iter().rfind(|range| range.first <= number).unwrap();
        let (name, class) = (name(arch, number), class(&range.decision));
        writeln!(table, "{number:3} {name:<28} {class}").unwrap();
    }
    table
}

fn name(arch: Arch, number: u32) -> &'static str {
    let id = usize::try_from(number).unwrap();
    let name = match arch {
        Arch::X86_64 => x86_64::Sysno::new(id).map(|call| call.name()),
        Arch::Aarch64 => aarch64::Sysno::new(id).map(|call| call.name()),
    };
    name.unwrap_or("-")
}

/// The verdicts that a number can have, in the order in which they are tried.
fn class(decision: &Decision) -> String {
    let branches = decision.branches.iter().map(|branch| branch.verdict);
    let mut words: Vec<String> = Vec::new();
    for verdict in branches.chain([decision.otherwise]) {
        let word = word(verdict);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" ")
}

fn word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Errno(1) => "EPERM".to_owned(),
        Verdict::Errno(38) => "ENOSYS".to_owned(),
        Verdict::Errno(93) => "EPROTONOSUPPORT".to_owned(),
        Verdict::Errno(95) => "EOPNOTSUPP".to_owned(),
        Verdict::Errno(97) => "EAFNOSUPPORT".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn every_policy_file_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seccomp");
    for (below, prefix) in [(folder.clone(), ""), (folder.join("profile"), "profile/")] {
        for entry in std::fs::read_dir(below).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = format!("{prefix}{name}");
            let known = files::FILES.iter().any(|(known, _)| *known == name);
            assert!(known || !name.ends_with(".json"), "{name}");
        }
    }
}

#[test]
fn every_rule_of_the_default_profile_can_be_reached() {
    for (arch, wearer) in ARCHES.into_iter().flat_map(|a| WEARERS.map(|w| (a, w))) {
        let find = |name: &str| files::find(name, Profile::Default);
        let policy = document::load(files::root(wearer), arch, &find).unwrap();
        for (at, rule) in policy.rules.iter().enumerate() {
            let mut earlier = policy.rules[..at].iter().filter(|e| e.number == rule.number);
            let hidden = earlier.any(|e| e.tests.is_empty() || e.tests == rule.tests);
            assert!(!hidden, "{rule:?} comes after one that answers for it");
        }
    }
}
