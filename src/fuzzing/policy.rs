//! Policy files → BPF: the program says of every call what its file says, read once more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::dice::Dice;
use crate::policy::{Arch, Call, Program, Verdict, compile_json};

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// Any text as a policy file.
pub fn policy_json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for arch in ARCHES {
        let find = |name: &str| (name == "main").then_some(text);
        match compile_json("main", arch, &find) {
            Ok(program) => {
                loads(&program);
                answers(&program, arch, &serde_json::from_str(text).expect("it was read"), bytes);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// What the kernel asks of a program before it takes it (seccomp_check_filter, bpf_check_classic).
fn loads(program: &Program) {
    let code = program.instructions();
    assert!((1..=4096).contains(&code.len()));
    for (at, instruction) in code.iter().enumerate() {
        let inside = |skip: usize| assert!(at + 1 + skip < code.len(), "a jump out of the program");
        match instruction.code {
            0x20 => {
                assert!(instruction.k % 4 == 0 && instruction.k < 64, "a load beyond seccomp_data");
            }
            0x05 => inside(usize::try_from(instruction.k).expect("usize")),
            0x15 | 0x25 | 0x35 => {
                inside(usize::from(instruction.jt));
                inside(usize::from(instruction.jf));
            }
            0x54 | 0x06 => {}
            other => panic!("no instruction of ours: {other:#x}"),
        }
    }
    assert_eq!(code.last().map(|last| last.code), Some(0x06), "the last instruction returns");
}

/// Every number, with arguments at and around what the rules compare with.
fn answers(program: &Program, arch: Arch, policy: &Value, bytes: &[u8]) {
    let mut dice = Dice::new(bytes);
    for nr in (0..=600).chain([0x3fff_ffff, 0x4000_0000, 0x4000_0029, u32::MAX]) {
        let rules = rules_of(policy, nr, arch);
        let values = values(&rules);
        for _ in 0..(1 + 4 * values.len()).min(48) {
            let args = [(); 6].map(|()| {
                if values.is_empty() { 0 } else { values[usize::from(dice.byte()) % values.len()] }
            });
            let call = Call { arch: arch.audit(), nr, args };
            assert_eq!(program.evaluate(&call), plainly(policy, &rules, &call), "{call:x?}");
        }
        let foreign = Call { arch: !arch.audit(), nr, args: [0; 6] };
        assert_eq!(program.evaluate(&foreign), Verdict::KillProcess, "{foreign:x?}");
    }
}

fn rules_of(policy: &Value, nr: u32, arch: Arch) -> Vec<&Value> {
    let name = |nr: u32| match arch {
        Arch::X86_64 => {
            syscalls::x86_64::Sysno::new(usize::try_from(nr).ok()?).map(|call| call.name())
        }
        Arch::Aarch64 => {
            syscalls::aarch64::Sysno::new(usize::try_from(nr).ok()?).map(|call| call.name())
        }
    };
    let Some(name) = name(nr) else { return Vec::new() };
    let rules = policy["filter"].as_array().expect("rules");
    rules.iter().filter(|rule| rule["syscall"] == name).collect()
}

/// The values of the rules' tests and their neighbours, with and without something in the upper half.
fn values(rules: &[&Value]) -> Vec<u64> {
    let mut values = BTreeSet::new();
    for test in rules.iter().flat_map(|rule| rule["args"].as_array().into_iter().flatten()) {
        let value = test["val"].as_u64().expect("val");
        let mask = test["op"]["masked_eq"].as_u64().unwrap_or(0);
        for near in [
            value,
            value.wrapping_add(1),
            value.wrapping_sub(1),
            value ^ mask,
            !mask,
            !mask | value,
        ] {
            values.extend([near, near ^ 0xdead_beef_0000_0000]);
        }
    }
    values.into_iter().collect()
}

/// What the file says, without any program.
fn plainly(policy: &Value, rules: &[&Value], call: &Call) -> Verdict {
    if call.nr >= 0x4000_0000 {
        return Verdict::KillProcess;
    }
    let first = rules
        .iter()
        .find(|rule| rule["args"].as_array().into_iter().flatten().all(|test| holds(test, call)));
    let either = |name: &str, alias: &str| policy.get(name).unwrap_or(&policy[alias]).clone();
    let action = match first {
        Some(_) => either("match_action", "filter_action"),
        None => either("mismatch_action", "default_action"),
    };
    serde_json::from_value(action).expect("an action")
}

fn holds(test: &Value, call: &Call) -> bool {
    let index = usize::try_from(test["index"].as_u64().expect("index")).expect("usize");
    let given = match test["type"].as_str() {
        Some("dword") => call.args[index] & 0xffff_ffff,
        _ => call.args[index],
    };
    let value = test["val"].as_u64().expect("val");
    match (test["op"].as_str(), test["op"]["masked_eq"].as_u64()) {
        (Some("eq"), _) => given == value,
        (Some("ne"), _) => given != value,
        (Some("lt"), _) => given < value,
        (Some("le"), _) => given <= value,
        (Some("gt"), _) => given > value,
        (Some("ge"), _) => given >= value,
        (None, Some(mask)) => given & mask == value & mask,
        other => panic!("no operator: {other:?}"),
    }
}
