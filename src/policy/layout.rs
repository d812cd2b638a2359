//! From ranges to instructions: one balanced tree with every answer in it.
//!
//! Written from its end to its start. Jumps of classic BPF lead forward only, so every target
//! is there already when a jump is written, answers are shared, and a leaf of the tree costs
//! no instruction of its own.

use super::bpf::{self, Instruction, Program, Verdict};
use super::decision::{Decision, Range};
use super::document::{Operator, Test, Width};
use super::{Arch, PolicyError};

/// x32 calls have this bit in their number and the architecture word of x86-64 (seccomp(2)).
/// No number of another architecture comes near it.
const X32: u32 = 0x4000_0000;
/// The longest program that the kernel loads.
const BPF_MAXINSNS: usize = 4096;
/// A conditional jump skips at most 255 instructions; two jumps may be put in between.
const REACH: usize = 255 - 2;

/// Lays `ranges` out behind a guard that kills calls of a foreign architecture or of x32.
pub(super) fn program(arch: Arch, ranges: &[Range]) -> Result<Program, PolicyError> {
    let mut layout = Layout::default();
    layout.guard(arch, ranges);
    let mut instructions = layout.reversed;
    if instructions.len() > BPF_MAXINSNS {
        let instructions = instructions.len();
        return Err(PolicyError::TooLong { instructions });
    }
    instructions.reverse();
    Ok(Program::new(instructions))
}

/// An instruction, counted from the end of the program.
type Label = usize;

#[derive(Default)]
struct Layout {
    /// The program, last instruction first.
    reversed: Vec<Instruction>,
    /// Where each verdict was returned last.
    verdicts: Vec<(Verdict, Label)>,
}

impl Layout {
    fn guard(&mut self, arch: Arch, ranges: &[Range]) {
        let tree = self.tree(ranges);
        let kill = self.verdict(Verdict::KillProcess);
        self.jump(bpf::IF_AT_LEAST, X32, kill, tree);
        let number = self.push(bpf::LOAD, bpf::NUMBER);
        let kill = self.verdict(Verdict::KillProcess);
        self.jump(bpf::IF_EQUAL, arch.audit(), number, kill);
        self.push(bpf::LOAD, bpf::ARCH);
    }

    /// Finds the range of the number in the accumulator in about log2 of their count.
    fn tree(&mut self, ranges: &[Range]) -> Label {
        match ranges {
            [] => self.verdict(Verdict::KillProcess),
            [only] => self.decision(&only.decision),
            _ => {
                let (lower, upper) = ranges.split_at(ranges.len() / 2);
                let first = upper[0].first;
                let upper = self.tree(upper);
                let lower = self.tree(lower);
                self.jump(bpf::IF_AT_LEAST, first, upper, lower)
            }
        }
    }

    fn decision(&mut self, decision: &Decision) -> Label {
        let mut next = self.verdict(decision.otherwise);
        for branch in decision.branches.iter().rev() {
            let mut hit = self.verdict(branch.verdict);
            for test in branch.tests.iter().rev() {
                hit = self.test(*test, hit, next);
            }
            next = hit;
        }
        next
    }

    fn test(&mut self, test: Test, hit: Label, miss: Label) -> Label {
        match test.operator {
            Operator::Eq => self.equal(test, u64::MAX, hit, miss),
            Operator::Ne => self.equal(test, u64::MAX, miss, hit),
            Operator::MaskedEq(mask) => self.equal(test, mask, hit, miss),
            Operator::Gt => self.above(test, bpf::IF_GREATER, hit, miss),
            Operator::Ge => self.above(test, bpf::IF_AT_LEAST, hit, miss),
            Operator::Le => self.above(test, bpf::IF_GREATER, miss, hit),
            Operator::Lt => self.above(test, bpf::IF_AT_LEAST, miss, hit),
        }
    }

    fn equal(&mut self, test: Test, mask: u64, yes: Label, no: Label) -> Label {
        let offset = bpf::low_half(test.index);
        let (low, high) = bpf::halves(test.value & mask);
        let (low_mask, high_mask) = bpf::halves(mask);
        let half = self.half_equal(offset, low, low_mask, yes, no);
        match test.width {
            Width::Dword => half,
            Width::Qword => self.half_equal(offset + 4, high, high_mask, half, no),
        }
    }

    fn half_equal(&mut self, offset: u32, k: u32, mask: u32, yes: Label, no: Label) -> Label {
        self.jump(bpf::IF_EQUAL, k, yes, no);
        if mask != u32::MAX {
            self.push(bpf::AND, mask);
        }
        self.push(bpf::LOAD, offset)
    }

    /// `code` is > or >= for the low half; an unequal high half decides by itself.
    fn above(&mut self, test: Test, code: u16, yes: Label, no: Label) -> Label {
        let offset = bpf::low_half(test.index);
        let (low, high) = bpf::halves(test.value);
        self.jump(code, low, yes, no);
        let half = self.push(bpf::LOAD, offset);
        match test.width {
            Width::Dword => half,
            Width::Qword => {
                let not_above = self.jump(bpf::IF_EQUAL, high, half, no);
                self.jump(bpf::IF_GREATER, high, yes, not_above);
                self.push(bpf::LOAD, offset + 4)
            }
        }
    }

    /// Returns `verdict`, from where it is returned already if that is near.
    fn verdict(&mut self, verdict: Verdict) -> Label {
        let known = self.verdicts.iter().rev().find(|(v, _)| *v == verdict);
        match known {
            Some(&(_, label)) if self.distance(label) <= REACH => label,
            _ => {
                let label = self.push(bpf::RETURN, verdict.word());
                self.verdicts.push((verdict, label));
                label
            }
        }
    }

    fn jump(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        let yes = self.near(yes);
        let no = self.near(no);
        let (jt, jf) = (self.skip(yes), self.skip(no));
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }

    /// A label within reach of the next conditional jump that leads to `label`.
    fn near(&mut self, label: Label) -> Label {
        let distance = self.distance(label);
        match u32::try_from(distance) {
            Ok(k) if distance > REACH => self.push(bpf::JUMP, k),
            _ => label,
        }
    }

    fn skip(&self, label: Label) -> u8 {
        // `near` has seen to it that this fits.
        u8::try_from(self.distance(label)).unwrap_or(u8::MAX)
    }

    /// How many instructions lie between the next one to be written and `label`.
    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - 1 - label
    }

    fn push(&mut self, code: u16, k: u32) -> Label {
        let (jt, jf) = (0, 0);
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }
}
