//! Names of system calls and their numbers.

use super::{Arch, Fault};
use std::str::FromStr;
use syscalls::{aarch64, x86_64};

/// The number of `name` on `arch`; `None` where only the other architecture has the call.
pub(super) fn number(name: &str, arch: Arch) -> Result<Option<u32>, Fault> {
    let x86_64 = x86_64::Sysno::from_str(name).ok().map(|call| call.id());
    let aarch64 = aarch64_number(name);
    let here = match arch {
        Arch::X86_64 => x86_64,
        Arch::Aarch64 => aarch64,
    };
    if x86_64.or(aarch64).is_none() {
        return Err(Fault::UnknownSyscall);
    }
    Ok(here.and_then(|id| u32::try_from(id).ok()))
}

fn aarch64_number(name: &str) -> Option<i32> {
    // The kernel says newfstatat on 64-bit machines (asm-generic/unistd.h), the crate fstatat.
    let name = match name {
        "newfstatat" => "fstatat",
        "fstatat" => return None,
        other => other,
    };
    aarch64::Sysno::from_str(name).ok().map(|call| call.id())
}
