//! From rules to what shall happen at each system call number.

use super::bpf::Verdict;
use super::document::{Policy, Rule, Test};
use std::collections::BTreeMap;

/// What happens at one number: the first branch whose tests all hold, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) branches: Vec<Branch>,
    pub(super) otherwise: Verdict,
}

/// A verdict that depends on arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) tests: Vec<Test>,
    pub(super) verdict: Verdict,
}

/// Numbers that share a decision: from `first` to the next range, or to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) decision: Decision,
}

/// The whole policy as ranges: ascending, the first at 0, no two equal neighbours.
pub(super) fn ranges(policy: &Policy) -> Vec<Range> {
    let unnamed = decide(&[], policy.mismatch);
    let mut ranges = vec![Range { first: 0, decision: unnamed.clone() }];
    for (number, rules) in by_number(&policy.rules) {
        extend(&mut ranges, number, decide(&rules, policy.mismatch));
        extend(&mut ranges, number + 1, unnamed.clone());
    }
    ranges
}

fn by_number(rules: &[Rule]) -> BTreeMap<u32, Vec<&Rule>> {
    let mut numbers: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        numbers.entry(rule.number).or_default().push(rule);
    }
    numbers
}

/// The first rule that matches wins, so nothing after an unconditional one counts.
fn decide(rules: &[&Rule], mismatch: Verdict) -> Decision {
    let last = rules.iter().find(|rule| rule.tests.is_empty());
    let otherwise = last.map_or(mismatch, |rule| rule.verdict);
    let mut branches: Vec<Branch> = rules
        .iter()
        .take_while(|rule| !rule.tests.is_empty())
        .map(|rule| Branch { tests: rule.tests.clone(), verdict: rule.verdict })
        .collect();
    while branches.pop_if(|last| last.verdict == otherwise).is_some() {}
    Decision { branches, otherwise }
}

/// Numbers from `first` on get `decision`, replacing what the last range said of them.
fn extend(ranges: &mut Vec<Range>, first: u32, decision: Decision) {
    ranges.pop_if(|last| last.first == first);
    if ranges.last().is_none_or(|last| last.decision != decision) {
        ranges.push(Range { first, decision });
    }
}
