//! Landlock, beside the crate of that name (landlock(7)).

use super::check;

/// The Landlock version of this kernel (landlock(7)); `None` where there is none or it is off.
#[must_use]
pub fn landlock_abi() -> Option<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel demands a null pointer and size 0 and creates nothing.
    let version = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    });
    version.ok().and_then(|version| u32::try_from(version).ok())
}
