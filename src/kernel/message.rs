//! Messages with descriptors over a `SOCK_SEQPACKET` socket (unix(7)).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

/// Most descriptors of one message; the kernel's own limit is 253 (`SCM_MAX_FD`).
pub const MESSAGE_DESCRIPTORS: usize = 250;
/// Most bytes of one message.
const MESSAGE_BYTES: usize = 8192;

/// Two connected sockets, close-on-exec.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn message_pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends one message. The receiver gets copies of the descriptors.
///
/// # Errors
/// `EPIPE` when the other end is closed, `ETOOMANYREFS` with too many descriptors on their way.
pub fn send_message(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> nix::Result<()> {
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    let bytes = [IoSlice::new(bytes)];
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &bytes, control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Waits for one message; `None` when the other end is closed. Descriptors are close-on-exec.
///
/// # Errors
/// `EMSGSIZE` for a message whose bytes were cut off, `ENOBUFS` for one whose descriptors were: no more may be
/// open here, and those that came are open and nobody's.
pub fn receive_message(socket: BorrowedFd<'_>) -> nix::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_BYTES];
    let mut space = cmsg_space!([RawFd; MESSAGE_DESCRIPTORS]);
    let mut fds = Vec::new();
    let length = {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let message = loop {
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            match recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags) {
                Err(Errno::EINTR) => {}
                result => break result?,
            }
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(received) = control {
                // SAFETY: the kernel has just installed these descriptors for this process;
                // nobody else owns them.
                fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(Errno::EMSGSIZE);
        }
        message.bytes
    };
    bytes.truncate(length);
    Ok((length > 0).then_some((bytes, fds)))
}
