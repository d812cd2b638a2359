//! deploy/container-seccomp.json: enough for a container, and no more than enough.
//!
//! The profile is put on a thread; the program that it starts wears it as in a container.

use std::collections::BTreeMap;
use std::process::Output;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde_json::Value;
use syscalls::Sysno;

use crate::needs;
use crate::support::{Ran, command};

fn profile() -> Value {
    serde_json::from_str(include_str!("../../deploy/container-seccomp.json")).expect("JSON")
}

/// The names of each entry, with its one condition.
fn entries(profile: &Value) -> impl Iterator<Item = (Vec<&str>, Option<SeccompRule>)> {
    profile["syscalls"].as_array().expect("syscalls").iter().map(|entry| {
        assert_eq!(entry["action"], "SCMP_ACT_ALLOW");
        assert!(entry["comment"].as_str().is_some_and(|why| !why.is_empty()));
        let names = entry["names"].as_array().expect("names");
        let names = names.iter().map(|name| name.as_str().expect("name")).collect();
        let rule = entry.get("args").map(|args| {
            let argument = &args[0];
            let index = argument["index"].as_u64().and_then(|n| u8::try_from(n).ok());
            let op = match argument["op"].as_str() {
                Some("SCMP_CMP_EQ") => SeccompCmpOp::Eq,
                Some("SCMP_CMP_NE") => SeccompCmpOp::Ne,
                other => panic!("{other:?}"),
            };
            let value = argument["value"].as_u64().expect("value");
            let index = index.expect("index");
            let condition = SeccompCondition::new(index, SeccompCmpArgLen::Qword, op, value);
            SeccompRule::new(vec![condition.expect("condition")]).expect("rule")
        });
        (names, rule)
    })
}

/// The profile as the kernel takes it, without the call `left_out`.
fn compiled(left_out: Option<&str>) -> BpfProgram {
    let mut rules = BTreeMap::new();
    for (names, rule) in entries(&profile()) {
        for name in names {
            // A name of the other architecture is none here, as container runtimes see it too.
            let Ok(number) = name.parse::<Sysno>() else { continue };
            if Some(name) != left_out {
                rules.insert(i64::from(number.id()), rule.clone().into_iter().collect());
            }
        }
    }
    let arch = std::env::consts::ARCH.try_into().expect("architecture");
    let (absent, allow) = (SeccompAction::Errno(38), SeccompAction::Allow);
    SeccompFilter::new(rules, absent, allow, arch).and_then(BpfProgram::try_from).expect("filter")
}

/// Runs the program in a container that has the profile, without the call `left_out`.
fn contained(left_out: Option<&str>, words: &[&str]) -> Output {
    let filter = compiled(left_out);
    let mut command = command();
    command.args(words);
    let worn = std::thread::spawn(move || {
        seccompiler::apply_filter(&filter).expect("seccomp");
        command.output().expect("start the program")
    });
    worn.join().expect("thread")
}

#[test]
fn sandboxes_stand_within_the_container_profile() {
    needs!(Userns, Python, Node);
    for words in [
        ["python", "python3", "-c", "print(sum(range(10)))"],
        ["node", "node", "-e", "console.log(45)"],
        ["shell", "sh", "-c", "seq 9 | awk '{ sum += $1 } END { print sum }'"],
    ] {
        let mut all = vec!["exec", "--json", "--env", words[0], "--"];
        all.extend(&words[1..]);
        let ran = Ran::of(&contained(None, &all));
        assert_eq!((ran.stdout.as_str(), ran.code), ("45\n", 0), "{}", ran.stderr);
    }
}

/// What stands in a container that has the profile, without the call `left_out`: the walls of a run,
/// and the doctor's checks. `None` if nothing runs.
fn standing(left_out: Option<&str>) -> Option<(Value, Vec<(Value, Value)>)> {
    let run = contained(left_out, &["exec", "--json", "--env", "shell", "--", "true"]);
    if run.status.code() == Some(125) {
        return None;
    }
    let said = contained(left_out, &["doctor", "--json"]).stdout;
    let doctor: Value = serde_json::from_slice(&said).expect("doctor --json");
    let checks = doctor["checks"].as_array().expect("checks").iter();
    let checks = checks.map(|check| (check["name"].clone(), check["status"].clone())).collect();
    Some((Ran::of(&run).json["enforced"].clone(), checks))
}

#[test]
fn no_wall_is_weaker_within_the_container_profile() {
    needs!(Userns);
    let outside = command().args(["exec", "--json", "--env", "shell", "--", "true"]).output();
    let (walls, _) = standing(None).expect("a sandbox stands");
    assert_eq!(walls, Ran::of(&outside.expect("exec")).json["enforced"]);
}

/// Without one call of our own entry nothing runs, or a wall or a check is named as missing.
#[test]
fn the_container_profile_adds_nothing_that_is_not_needed() {
    needs!(Userns);
    let profile = profile();
    let ours = entries(&profile).map(|(names, _)| names).find(|names| names.contains(&"clone3"));
    let whole = standing(None);
    // Every fork is a clone: without it there is not even a program to start.
    for name in ours.expect("our own entry").into_iter().filter(|name| *name != "clone") {
        assert_ne!(standing(Some(name)), whole, "{name} is not needed");
    }
}

/// What a payload may do by our own filter, the container's does not take away.
#[test]
fn the_container_profile_has_every_call_of_a_payload() {
    let base: Value =
        serde_json::from_str(include_str!("../../seccomp/base.json")).expect("base.json");
    let profile = profile();
    let allowed: Vec<&str> = entries(&profile).flat_map(|(names, _)| names).collect();
    for rule in base["filter"].as_array().expect("filter") {
        let name = rule["syscall"].as_str().expect("syscall");
        assert!(allowed.contains(&name), "{name}");
    }
}
