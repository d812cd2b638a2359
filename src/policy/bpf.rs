//! Classic BPF as far as seccomp filters use it: instruction, program, interpreter.

use serde::{Deserialize, Serialize};

/// `BPF_LD | BPF_W | BPF_ABS`: accumulator = the 32-bit word at byte `k` of `seccomp_data`.
pub(super) const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`: accumulator &= `k`.
pub(super) const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JA`: skip `k` instructions.
pub(super) const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`: skip `jt` instructions if accumulator == `k`, else `jf`.
pub(super) const IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGT | BPF_K`: the same for >, unsigned.
pub(super) const IF_GREATER: u16 = 0x25;
/// `BPF_JMP | BPF_JGE | BPF_K`: the same for >=, unsigned.
pub(super) const IF_AT_LEAST: u16 = 0x35;
/// `BPF_RET | BPF_K`: the verdict is `k`.
pub(super) const RETURN: u16 = 0x06;

/// Byte offset of the system call number in the kernel's `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
/// Byte offset of the architecture word.
pub(super) const ARCH: u32 = 4;
/// Byte offset of the low half of argument `index`; the high half is 4 further.
/// Both architectures are little endian.
pub(super) const fn low_half(index: u8) -> u32 {
    16 + 8 * index as u32
}

/// The low and the high 32 bits of a value.
#[expect(clippy::cast_possible_truncation, reason = "each half is wanted by itself")]
pub(super) const fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

/// One instruction, laid out as the kernel's `struct sock_filter` (`linux/filter.h`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip if the test holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// What the filter is asked: the parts of `struct seccomp_data` that our programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// `AUDIT_ARCH_*`, see [`super::Arch::audit`].
    pub arch: u32,
    /// The number of the system call, with `0x4000_0000` set for x32.
    pub nr: u32,
    /// The arguments as the registers hold them.
    pub args: [u64; 6],
}

impl Call {
    /// The word at a byte offset; `None` where the kernel would refuse to load from.
    fn word(&self, offset: u32) -> Option<u32> {
        match offset {
            NUMBER => Some(self.nr),
            ARCH => Some(self.arch),
            8 | 12 => Some(0),
            _ => {
                let index = usize::try_from(offset.checked_sub(16)?).ok()?;
                let (low, high) = halves(*self.args.get(index / 8)?);
                match index % 8 {
                    0 => Some(low),
                    4 => Some(high),
                    _ => None,
                }
            }
        }
    }
}

/// What the filter answers. Also the action of a rule, spelled as seccompiler spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The kernel carries the call out.
    Allow,
    /// The call returns this errno and does nothing.
    Errno(u16),
    /// The process dies of SIGSYS.
    KillProcess,
    /// The thread dies of SIGSYS.
    KillThread,
    /// The kernel carries the call out and logs it.
    Log,
    /// A tracer is asked; without one the call returns ENOSYS.
    Trace(u16),
    /// The thread gets SIGSYS, which it may handle.
    Trap,
}

impl Verdict {
    /// The kernel's word for it, `SECCOMP_RET_*` of `linux/seccomp.h`.
    pub(super) const fn word(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0,
            Self::Trap => 0x0003_0000,
            Self::Errno(errno) => 0x0005_0000 | errno as u32,
            Self::Trace(message) => 0x7ff0_0000 | message as u32,
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }

    /// What the kernel makes of a word: one that it does not know kills the process.
    fn from_word(word: u32) -> Self {
        let [low, high, ..] = word.to_le_bytes();
        let data = u16::from_le_bytes([low, high]);
        match word & 0xffff_0000 {
            0 => Self::KillThread,
            0x0003_0000 => Self::Trap,
            0x0005_0000 => Self::Errno(data),
            0x7ff0_0000 => Self::Trace(data),
            0x7ffc_0000 => Self::Log,
            0x7fff_0000 => Self::Allow,
            _ => Self::KillProcess,
        }
    }
}

/// A seccomp filter, ready for `seccomp(SECCOMP_SET_MODE_FILTER)`.
///
/// The kernel (5.11+) remembers which numbers are allowed whatever the arguments, so most
/// calls do not even run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    pub(super) const fn new(instructions: Vec<Instruction>) -> Self {
        Self { instructions }
    }

    /// The instructions in order, at most 4096.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// What the kernel would answer to `call`. Jumps lead forward only, so it ends.
    #[must_use]
    pub fn evaluate(&self, call: &Call) -> Verdict {
        // Kill is what remains where the kernel would not have loaded such a program.
        self.run(call).unwrap_or(Verdict::KillProcess)
    }

    fn run(&self, call: &Call) -> Option<Verdict> {
        let mut accumulator = 0;
        let mut at = 0_usize;
        loop {
            let Instruction { code, jt, jf, k } = *self.instructions.get(at)?;
            let branch = |taken: bool| usize::from(if taken { jt } else { jf });
            at += 1;
            match code {
                LOAD => accumulator = call.word(k)?,
                AND => accumulator &= k,
                JUMP => at = at.checked_add(usize::try_from(k).ok()?)?,
                IF_EQUAL => at += branch(accumulator == k),
                IF_GREATER => at += branch(accumulator > k),
                IF_AT_LEAST => at += branch(accumulator >= k),
                RETURN => return Some(Verdict::from_word(k)),
                _ => return None,
            }
        }
    }
}
