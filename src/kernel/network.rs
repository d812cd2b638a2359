//! The one thing the engine does to a network namespace.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::check;

/// Brings `lo` up. The kernel then adds 127.0.0.1/8 and ::1/128 itself, so no netlink message is
/// needed (netdevice(7); measured on 6.1 and 6.18).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the network namespace, `ENODEV` where it has no `lo`.
pub fn loopback_up() -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: `ifreq` is a C union of plain data; all-zero is a valid value of each member.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from.cast_signed();
    }
    #[expect(clippy::cast_possible_truncation, reason = "IFF_UP | IFF_RUNNING is 0x41")]
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: SIOCSIFFLAGS reads one ifreq; `request` is one, initialised, and outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))
    .map(drop)
}
