//! Seccomp as data: `seccomp/*.json` → checked rules → one BPF program.
//!
//! The way of a rule, one module for each step:
//!
//! 1. `document` reads the files, follows their includes and checks every rule.
//! 2. `decision` gathers the rules of each system call number and joins equal neighbours.
//! 3. `layout` writes the answer as one balanced tree behind an architecture guard.
//! 4. `bpf` holds the program, and an interpreter which answers as the kernel would.
//!
//! The first rule that matches wins: included files come before the file that names them,
//! in the order listed, and the profile comes before everything. So an including file answers
//! only what its includes leave open.
//!
//! Pure: no I/O, no libc; the files are part of the binary.
//! Sources: seccomp(2), `Documentation/userspace-api/seccomp_filter.rst`.

mod bpf;
mod decision;
mod document;
mod files;
mod layout;
mod syscall;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub use bpf::{Call, Instruction, Program, Verdict};

/// The instruction sets that the policies are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 64-bit x86, without its 32-bit and x32 calls.
    X86_64,
    /// 64-bit ARM, without its 32-bit calls.
    Aarch64,
}

impl Arch {
    /// The instruction set that this program was built for.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub const fn native() -> Self {
        Self::X86_64
    }

    /// The instruction set that this program was built for.
    #[cfg(target_arch = "aarch64")]
    #[must_use]
    pub const fn native() -> Self {
        Self::Aarch64
    }

    /// The kernel's word for it, `AUDIT_ARCH_*` of `linux/audit.h`.
    #[must_use]
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }
}

/// How much a payload may do; the differences are the lines of `seccomp/profile/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Real programs work, every known danger is closed.
    #[default]
    Default,
    /// Less: no named sockets, no System V IPC, no message queues.
    Strict,
    /// More: debuggers, native AIO, NUMA, urgent data.
    Compat,
}

impl Profile {
    const ALL: [Self; 3] = [Self::Default, Self::Strict, Self::Compat];

    /// The name used in settings and in `seccomp/profile/`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Strict => "strict",
            Self::Compat => "compat",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Self, PolicyError> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| PolicyError::UnknownProfile(name.to_owned()))
    }
}

/// Whose filter it is. What starts other programs passes its filter on to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wearer {
    /// Any program.
    Base,
    /// A Python interpreter.
    Python,
    /// A node interpreter.
    Node,
    /// A shell, which starts anything.
    Shell,
    /// Pid 1 after it has started the payload. The same in every profile.
    Init,
}

/// Why a policy could not be made. All but `UnknownProfile` are faults of a policy file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is not one of default, strict, compat.
    #[error("unknown seccomp profile {0:?}: use default, strict or compat")]
    UnknownProfile(String),
    /// The text is not a policy document.
    #[error("{file}: {source}")]
    Syntax {
        /// The file as it was named.
        file: String,
        /// What the JSON reader says, with line and column.
        source: serde_json::Error,
    },
    /// An included file does not exist.
    #[error("{file}: no such policy file")]
    UnknownFile {
        /// The file as it was named.
        file: String,
    },
    /// Two files of one policy answer unnamed calls differently, so neither can be right.
    #[error("{file}: its mismatch_action differs from that of the file that includes it")]
    Mismatch {
        /// The included file.
        file: String,
    },
    /// A rule cannot be what its author meant.
    #[error("{file}: rule {rule} ({syscall}): {fault}")]
    Rule {
        /// The file of the rule.
        file: String,
        /// Its place in `filter`, from 1.
        rule: usize,
        /// The system call that it names.
        syscall: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// An action carries an errno that the kernel would not pass on.
    #[error("{file}: errno {errno} is not within 1..=4095")]
    Errno {
        /// The file of the action.
        file: String,
        /// The number given.
        errno: u16,
    },
    /// The kernel takes at most 4096 instructions (`BPF_MAXINSNS`).
    #[error("the program has {instructions} instructions, the kernel takes at most 4096")]
    TooLong {
        /// The length of the program.
        instructions: usize,
    },
}

/// What is wrong with one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No architecture has a call of this name: a typing error, or newer than our table.
    #[error("no such system call on any architecture")]
    UnknownSyscall,
    /// Every rule says why it is there.
    #[error("the comment is empty")]
    NoReason,
    /// `args: []` reads like a test and is none.
    #[error("args is empty: leave it out")]
    NoTests,
    /// A system call has six arguments.
    #[error("argument index is above 5")]
    Index,
    /// A 32-bit comparison with such a value can never be meant.
    #[error("the value or mask does not fit a dword")]
    TooWide,
}

/// Compiles the embedded policy of `wearer` in `profile` for `arch`.
///
/// # Errors
///
/// [`PolicyError`] if an embedded file is at fault; the tests show that none is.
pub fn compile(wearer: Wearer, profile: Profile, arch: Arch) -> Result<Program, PolicyError> {
    let root = files::root(wearer);
    compile_json(root, arch, &|name| files::find(name, profile))
}

/// Compiles the policy whose root file is called `root`; `find` gives the text of a file.
///
/// # Errors
///
/// [`PolicyError`], naming the file and the rule at fault.
pub fn compile_json<'a>(
    root: &str,
    arch: Arch,
    find: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<Program, PolicyError> {
    let policy = document::load(root, arch, find)?;
    layout::program(arch, &decision::ranges(&policy))
}
