//! Memory: files without a name (memfd_create(2)), of any length and in nobody's list of anything, and
//! what the allocator keeps.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// One that holds `bytes`, to be read from its beginning. `name` is for people who look into `/proc`.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn file_in_memory(name: &CStr, bytes: &[u8]) -> nix::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(|error| super::errno(&error))?;
    Ok(file.into())
}

/// Gives back to the kernel what this process has freed (malloc_trim(3), of the GNU C library; others keep
/// less). For who lives long and does little.
pub fn give_back_memory() {
    // SAFETY: it takes an integer, and touches nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
