//! Loading a seccomp filter.

use crate::policy::Instruction;

use super::check;

const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;

/// Puts a program on the calling thread, for good (seccomp(2)). `no_new_privs` must be set.
///
/// # Errors
/// `EINVAL` for a malformed program or a kernel without filters, `EACCES` without
/// `no_new_privs`, `ENOMEM` at the kernel's limit of 32,768 instructions.
pub fn load_filter(instructions: &[Instruction]) -> nix::Result<()> {
    let fprog = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| nix::errno::Errno::EINVAL)?,
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: `Instruction` is #[repr(C)] with the fields of struct sock_filter; `fprog` names as
    // many of them as there are, they outlive the call, and the kernel only reads them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&fprog))
    })
    .map(drop)
}
