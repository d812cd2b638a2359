//! Thin typed calls that no crate has.
//!
//! Errors are [`nix::errno::Errno`], descriptors [`std::os::fd::OwnedFd`]. What shall hold is decided in
//! [`crate::engine`]; here is how the kernel is told. This is the only floor where `unsafe` may stand.

mod arguments;
mod clone;
mod descriptors;
mod inherited;
mod landlock;
mod memory;
mod message;
mod mount;
mod network;
mod process;
mod seccomp;
mod spawn;
mod terminal;

pub use arguments::Arguments;
pub use clone::{Cloned, Namespaces, clone};
pub use descriptors::{can_keep, close_inherited, keep_only};
pub use inherited::{
    drop_bounding_set, is_ignored, join_new_session_keyring, reset_dispositions, reset_personality,
    reset_priority, set_affinity_all, set_thp_default,
};
pub use landlock::landlock_abi;
pub use memory::{file_in_memory, give_back_memory};
pub use message::{MESSAGE_DESCRIPTORS, message_pair, receive_message, send_message};
pub use mount::{
    Attributes, clone_tree, move_onto, new_filesystem, pivot_into, set_attributes, set_idmap,
    set_private,
};
pub use network::loopback_up;
pub use process::{
    exit_now, ignore_children, limit_process, owner_of_namespace, pidfd_open, pidfd_signal,
};
pub use seccomp::load_filter;
pub use spawn::{fork, spawn_sharing};
pub use terminal::{claim_terminal, set_window_size, terminal_peer, unlock_terminal, window_size};

use nix::errno::Errno;

/// Turns the return value of a raw system call into a result.
fn check(value: libc::c_long) -> nix::Result<libc::c_long> {
    if value < 0 { Err(Errno::last()) } else { Ok(value) }
}

/// The kernel's answer in an error of the standard library; `EIO` for one that is not the kernel's.
#[must_use]
pub fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
