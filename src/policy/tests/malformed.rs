//! Files that must be refused, and why the author is told.

use crate::policy::bpf::{self, Instruction};
use crate::policy::{Arch, Call, Fault, PolicyError, Program, Verdict, compile_json};

fn compile(files: &[(&str, &str)]) -> Result<Program, PolicyError> {
    compile_json(files[0].0, Arch::X86_64, &|name| {
        files.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    })
}

/// A file with these rules; `include` and actions as most have them.
fn file(include: &str, action: &str, rules: &str) -> String {
    format!(
        r#"{{"comment": "x", "include": [{include}], "mismatch_action": {{"errno": 38}},
            "match_action": {action}, "filter": [{rules}]}}"#
    )
}

fn fault(rule: &str) -> Fault {
    let text = file("", r#""allow""#, rule);
    match compile(&[("a.json", &text)]) {
        Err(PolicyError::Rule { file, rule: 1, fault, .. }) => {
            assert_eq!(file, "a.json");
            fault
        }
        other => panic!("{other:?}"),
    }
}

fn ask(program: &Program, nr: u32) -> Verdict {
    program.evaluate(&Call { arch: Arch::X86_64.audit(), nr, args: [0; 6] })
}

#[test]
fn a_name_that_nobody_knows_is_an_error_that_names_file_and_rule() {
    assert_eq!(fault(r#"{"syscall": "opne", "comment": "y"}"#), Fault::UnknownSyscall);
    let text = file("", r#""allow""#, r#"{"syscall": "opne", "comment": "y"}"#);
    let told = compile(&[("a.json", &text)]).unwrap_err().to_string();
    assert_eq!(told, "a.json: rule 1 (opne): no such system call on any architecture");
}

#[test]
fn a_rule_without_a_reason_is_refused() {
    let rule = r#"{"syscall": "read", "comment": " "}"#;
    assert_eq!(fault(rule), Fault::NoReason);
    let text = file("", r#""allow""#, r#"{"syscall": "read"}"#);
    let result = compile(&[("a.json", &text)]);
    assert!(matches!(result, Err(PolicyError::Syntax { .. })));
}

#[test]
fn a_test_that_cannot_be_meant_is_refused() {
    let with = |args: &str| {
        let rule = format!(r#"{{"syscall": "read", "args": [{args}], "comment": "y"}}"#);
        fault(&rule)
    };
    assert_eq!(with(""), Fault::NoTests);
    let test = r#"{"index": 6, "type": "dword", "op": "eq", "val": 0}"#;
    assert_eq!(with(test), Fault::Index);
    let test = r#"{"index": 0, "type": "dword", "op": "eq", "val": 4294967296}"#;
    assert_eq!(with(test), Fault::TooWide);
    let test = r#"{"index": 0, "type": "dword", "op": {"masked_eq": 4294967296}, "val": 0}"#;
    assert_eq!(with(test), Fault::TooWide);
}

#[test]
fn a_misspelt_field_is_refused() {
    let rule = r#"{"syscall": "read", "arg": [], "comment": "y"}"#;
    let text = file("", r#""allow""#, rule);
    let result = compile(&[("a.json", &text)]);
    assert!(matches!(result, Err(PolicyError::Syntax { file, .. }) if file == "a.json"));
}

#[test]
fn a_missing_include_is_refused() {
    let text = file(r#""b.json""#, r#""allow""#, "");
    let result = compile(&[("a.json", &text)]);
    assert!(matches!(result, Err(PolicyError::UnknownFile { file }) if file == "b.json"));
}

#[test]
fn files_that_disagree_about_unnamed_calls_are_refused() {
    let root = file(r#""b.json""#, r#""allow""#, "");
    let other = file("", r#""allow""#, "").replace("38", "1");
    let result = compile(&[("a.json", &root), ("b.json", &other)]);
    assert!(matches!(result, Err(PolicyError::Mismatch { file }) if file == "b.json"));
}

#[test]
fn an_errno_that_the_kernel_would_change_is_refused() {
    for errno in [0, 4096, 65535] {
        let action = format!(r#"{{"errno": {errno}}}"#);
        let text = file("", &action, "");
        let result = compile(&[("a.json", &text)]);
        assert!(matches!(result, Err(PolicyError::Errno { errno: e, .. }) if e == errno));
    }
}

#[test]
fn an_include_answers_before_the_file_that_names_it() {
    let read = r#"{"syscall": "read", "comment": "y"}"#;
    let root = file(r#""b.json""#, r#""allow""#, read);
    let first = file("", r#"{"errno": 1}"#, read);
    let program = compile(&[("a.json", &root), ("b.json", &first)]).unwrap();
    assert_eq!(ask(&program, 0), Verdict::Errno(1));
}

#[test]
fn includes_in_a_circle_end() {
    let a = file(r#""b.json""#, r#""allow""#, "");
    let b = file(r#""a.json", "b.json""#, r#""allow""#, "");
    assert!(compile(&[("a.json", &a), ("b.json", &b)]).is_ok());
}

#[test]
fn seccompilers_other_action_names_are_understood() {
    let read = r#"{"syscall": "read", "comment": "y"}"#;
    for (action, verdict) in [
        (r#""kill_process""#, Verdict::KillProcess),
        (r#""kill_thread""#, Verdict::KillThread),
        (r#""log""#, Verdict::Log),
        (r#""trap""#, Verdict::Trap),
        (r#"{"trace": 7}"#, Verdict::Trace(7)),
    ] {
        let text = file("", action, read)
            .replace("mismatch_action", "default_action")
            .replace("match_action", "filter_action");
        let program = compile(&[("a.json", &text)]).unwrap();
        assert_eq!(ask(&program, 0), verdict);
        assert_eq!(ask(&program, 1), Verdict::Errno(38));
    }
}

/// The kernel would refuse to load such programs; for the interpreter they kill.
#[test]
fn a_program_that_no_kernel_loads_kills() {
    let one = |code, k| {
        let (jt, jf) = (0, 0);
        Instruction { code, jt, jf, k }
    };
    let allow = one(bpf::RETURN, Verdict::Allow.word());
    let run = |code, k| ask(&Program::new(vec![one(code, k), allow]), 0);

    assert_eq!(run(bpf::LOAD, 60), Verdict::Allow);
    assert_eq!(run(bpf::LOAD, 64), Verdict::KillProcess);
    assert_eq!(run(bpf::LOAD, 18), Verdict::KillProcess);
    assert_eq!(run(bpf::JUMP, 0), Verdict::Allow);
    assert_eq!(run(bpf::JUMP, 1), Verdict::KillProcess);
    assert_eq!(run(bpf::JUMP, u32::MAX), Verdict::KillProcess);
    assert_eq!(run(0xffff, 0), Verdict::KillProcess);
    // SECCOMP_RET_USER_NOTIF, for which nobody here listens
    assert_eq!(run(bpf::RETURN, 0x7fc0_0000), Verdict::KillProcess);
    assert_eq!(ask(&Program::new(Vec::new()), 0), Verdict::KillProcess);
}

#[test]
fn a_program_longer_than_the_kernel_takes_is_refused() {
    let with_tests = |count: u32| {
        let rules = (0..count).map(|value| {
            let test = format!(r#"{{"index": 0, "type": "qword", "op": "eq", "val": {value}}}"#);
            format!(r#"{{"syscall": "read", "args": [{test}], "comment": "y"}}"#)
        });
        file("", r#""allow""#, &rules.collect::<Vec<_>>().join(","))
    };
    let text = with_tests(900);
    let length = compile(&[("a.json", &text)]).unwrap().instructions().len();
    assert!(length > 3600 && length <= 4096, "{length}");
    let text = with_tests(1200);
    let result = compile(&[("a.json", &text)]);
    assert!(matches!(result, Err(PolicyError::TooLong { instructions }) if instructions > 4096));
}
