//! seccompiler as the oracle: it compiles the same rules, and both programs must agree.
//!
//! It has one match action for each filter, so each run of rules with the same action becomes a
//! filter of its own, and the first that matches gives the answer. It has no x32 guard.
//!
//! Both run on our interpreter, so the rules are read a third time, without any program.

use super::super::decision;
use super::super::document::{self, Operator, Policy, Rule, Test, Width};
use super::super::{bpf, files, layout};
use super::{ARCHES, PROFILES, WEARERS};
use crate::policy::{Arch, Call, Instruction, Program, Verdict};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::{BTreeMap, BTreeSet};

const X32: u32 = 0x4000_0000;

/// seccompiler's programs in the order of the rules, each with what a match in it means.
struct Oracle {
    filters: Vec<(Program, Verdict)>,
    mismatch: Verdict,
}

impl Oracle {
    fn new(policy: &Policy, arch: Arch) -> Self {
        let runs = policy.rules.chunk_by(|a, b| a.verdict == b.verdict);
        Self {
            filters: runs.map(|run| (reference(run, arch), run[0].verdict)).collect(),
            mismatch: policy.mismatch,
        }
    }

    fn answer(&self, call: &Call) -> Verdict {
        if call.nr >= X32 {
            return Verdict::KillProcess;
        }
        for (program, verdict) in &self.filters {
            match program.evaluate(call) {
                // Log stands for "no match": no file of ours uses it.
                Verdict::Log => {}
                Verdict::Allow => return *verdict,
                guarded => return guarded,
            }
        }
        self.mismatch
    }
}

/// What the rules say, by definition.
fn plainly(policy: &Policy, call: &Call) -> Verdict {
    if call.nr >= X32 {
        return Verdict::KillProcess;
    }
    let mut rules = policy.rules.iter().filter(|rule| rule.number == call.nr);
    let first = rules.find(|rule| rule.tests.iter().all(|test| holds(test, call)));
    first.map_or(policy.mismatch, |rule| rule.verdict)
}

fn holds(test: &Test, call: &Call) -> bool {
    let given = call.args[usize::from(test.index)];
    let given = match test.width {
        Width::Dword => given % (1 << 32),
        Width::Qword => given,
    };
    let value = test.value;
    match test.operator {
        Operator::Eq => given == value,
        Operator::Ne => given != value,
        Operator::Lt => given < value,
        Operator::Le => given <= value,
        Operator::Gt => given > value,
        Operator::Ge => given >= value,
        Operator::MaskedEq(mask) => given & mask == value & mask,
    }
}

fn reference(rules: &[Rule], arch: Arch) -> Program {
    let mut map: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // For seccompiler an empty list means that the call always matches.
    let always: BTreeSet<u32> =
        rules.iter().filter(|rule| rule.tests.is_empty()).map(|rule| rule.number).collect();
    for rule in rules {
        let list = map.entry(i64::from(rule.number)).or_default();
        if !always.contains(&rule.number) {
            let conditions = rule.tests.iter().map(condition).collect();
            list.push(SeccompRule::new(conditions).unwrap());
        }
    }
    let target = match arch {
        Arch::X86_64 => TargetArch::x86_64,
        Arch::Aarch64 => TargetArch::aarch64,
    };
    let filter = SeccompFilter::new(map, SeccompAction::Log, SeccompAction::Allow, target);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    let instructions =
        program.iter().map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k });
    Program::new(instructions.collect())
}

fn condition(test: &Test) -> SeccompCondition {
    let width = match test.width {
        Width::Dword => SeccompCmpArgLen::Dword,
        Width::Qword => SeccompCmpArgLen::Qword,
    };
    let operator = match test.operator {
        Operator::Eq => SeccompCmpOp::Eq,
        Operator::Ne => SeccompCmpOp::Ne,
        Operator::Lt => SeccompCmpOp::Lt,
        Operator::Le => SeccompCmpOp::Le,
        Operator::Gt => SeccompCmpOp::Gt,
        Operator::Ge => SeccompCmpOp::Ge,
        Operator::MaskedEq(mask) => SeccompCmpOp::MaskedEq(mask),
    };
    SeccompCondition::new(test.index, width, operator, test.value).unwrap()
}

/// Values on both sides of every border that a test of this argument draws.
fn candidates(rules: &[&Rule], index: u8) -> Vec<u64> {
    const GARBAGE: u64 = 0xdead_beef << 32;
    let mut values = BTreeSet::from([0]);
    let tests = rules.iter().flat_map(|rule| &rule.tests);
    for test in tests.filter(|test| test.index == index) {
        let value = test.value;
        values.extend([1, u64::MAX, value, value ^ GARBAGE]);
        values.extend([value.wrapping_sub(1), value.wrapping_add(1)]);
        if let Operator::MaskedEq(mask) = test.operator {
            let bits = (0..64).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
            values.extend(bits.map(|bit| value ^ bit));
            values.extend([!mask, !mask | value]);
        }
    }
    values.into_iter().collect()
}

/// All argument vectors to ask about: every combination of the candidates of each argument.
fn vectors(rules: &[&Rule]) -> Vec<[u64; 6]> {
    let mut vectors = vec![[0; 6]];
    for index in 0..6_u8 {
        let values = candidates(rules, index);
        vectors = vectors
            .iter()
            .flat_map(|vector| {
                values.iter().map(|value| {
                    let mut vector = *vector;
                    vector[usize::from(index)] = *value;
                    vector
                })
            })
            .collect();
    }
    vectors
}

/// Compares all three everywhere; returns how many calls were asked.
fn compare(policy: &Policy, arch: Arch) -> usize {
    let program = layout::program(arch, &decision::ranges(policy)).unwrap();
    let oracle = Oracle::new(policy, arch);
    let beyond = [u32::MAX, X32 - 1, X32, X32 + 1, X32 + 59, X32 + 512, X32 + 547];
    let mut asked = 0;
    for nr in (0..=600).chain(beyond) {
        let rules: Vec<&Rule> = policy.rules.iter().filter(|r| r.number == nr).collect();
        for args in vectors(&rules) {
            let arch = arch.audit();
            let call = Call { arch, nr, args };
            let (ours, theirs) = (program.evaluate(&call), oracle.answer(&call));
            assert_eq!(ours, theirs, "{call:x?} {rules:?}");
            assert_eq!(ours, plainly(policy, &call), "{call:x?} {rules:?}");
            asked += 1;
        }
        for arch in [0x4000_0003, 0, !arch.audit()] {
            let args = [0; 6];
            let call = Call { arch, nr, args };
            assert_eq!(program.evaluate(&call), oracle.answer(&call), "{call:x?}");
        }
    }
    asked
}

#[test]
fn every_policy_answers_as_seccompiler_does() {
    let mut asked = 0;
    for arch in ARCHES {
        for wearer in WEARERS {
            for profile in PROFILES {
                let find = |name: &str| files::find(name, profile);
                let policy = document::load(files::root(wearer), arch, &find).unwrap();
                asked += compare(&policy, arch);
            }
        }
    }
    assert!(asked > 100_000, "{asked}");
}

/// Each operator and width, alone and chained, at numbers that share a border.
#[test]
fn every_operator_answers_as_seccompiler_does() {
    let operators = [
        Operator::Eq,
        Operator::Ne,
        Operator::Lt,
        Operator::Le,
        Operator::Gt,
        Operator::Ge,
        Operator::MaskedEq(0xf0),
        Operator::MaskedEq(0x00ff_0000_00ff),
    ];
    for (width, value) in [
        (Width::Dword, 0),
        (Width::Dword, 0x1234),
        (Width::Dword, 0xffff_ffff),
        (Width::Qword, 0x1234),
        (Width::Qword, 0x7_0000_0000),
        (Width::Qword, 0x7_8000_1234),
        (Width::Qword, u64::MAX),
    ] {
        let mut rules = Vec::new();
        for (number, operator) in (10..).zip(operators) {
            let test = |index| Test { index, width, operator, value };
            for (tests, verdict) in
                [(vec![test(0), test(5)], Verdict::Errno(1)), (vec![test(5)], Verdict::Allow)]
            {
                rules.push(Rule { number, tests, verdict });
            }
        }
        let mismatch = Verdict::Errno(38);
        compare(&Policy { mismatch, rules }, Arch::X86_64);
    }
}

/// So many rules that conditional jumps cannot reach across the tree.
#[test]
fn jumps_beyond_255_answer_as_seccompiler_does() {
    let rules: Vec<Rule> = (0..600)
        .flat_map(|number| {
            let test = Test {
                index: 0,
                width: Width::Qword,
                operator: Operator::Eq,
                value: u64::from(number),
            };
            [(vec![test], Verdict::Allow), (vec![], Verdict::Errno(1))]
                .map(|(tests, verdict)| Rule { number, tests, verdict })
        })
        .collect();
    let mismatch = Verdict::Errno(38);
    let policy = Policy { mismatch, rules };
    let program = layout::program(Arch::X86_64, &decision::ranges(&policy)).unwrap();
    let jumps = program.instructions().iter();
    assert!(jumps.filter(|i| i.code == bpf::JUMP).count() > 0);
    compare(&policy, Arch::X86_64);
}

/// But for our two additions, a file can be given to seccompiler or Firecracker as it is.
#[test]
fn the_files_are_written_in_seccompilers_form() {
    const NEWER_THAN_ITS_TABLE: &str = "setxattrat getxattrat listxattrat removexattrat \
        open_tree_attr file_getattr file_setattr uprobe";
    for (name, text) in files::FILES {
        let mut document: serde_json::Value = serde_json::from_str(text).unwrap();
        let object = document.as_object_mut().unwrap();
        object.remove("include");
        object.remove("comment");
        // It refuses a filter with one action; the file of what is absent has ENOSYS twice.
        if object["match_action"] == object["mismatch_action"] {
            object["mismatch_action"] = "log".into();
        }
        let rules = object["filter"].as_array_mut().unwrap();
        rules.retain(|rule| {
            let name = rule["syscall"].as_str().unwrap();
            !NEWER_THAN_ITS_TABLE.split_whitespace().any(|n| n == name)
        });
        let named = serde_json::json!({ "main": document }).to_string();
        let result = seccompiler::compile_from_json(named.as_bytes(), TargetArch::x86_64);
        assert!(result.is_ok(), "{name}: {result:?}");
    }
}
