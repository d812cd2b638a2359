//! What stands where in the sandbox's file tree.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::os_text;

/// Device and inode number: which file a path named when it was checked. What is mounted must be
/// this very file (CVE-2018-15664: a path swapped between check and mount).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// Something on the host, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// Where it lies; absolute.
    #[serde(with = "os_text::path")]
    pub path: PathBuf,
    /// Whether it is a directory (else a regular file).
    pub directory: bool,
    /// Which file it was when it was checked.
    pub identity: FileIdentity,
}

/// Where a server's sandboxes find the long output of its earlier runs.
pub const OUTPUTS: &str = "/outputs";

impl MountKind {
    /// Whether each sandbox has its own, at least in part; what remains can be shown to many alike.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        match self {
            Self::Code | Self::Tmpfs { .. } | Self::Proc | Self::Devices { .. } => true,
            Self::Bind { .. }
            | Self::Symlink { .. }
            | Self::File { .. }
            | Self::Directory
            | Self::Outputs => false,
        }
    }
}

/// One place in the sandbox's file tree. Its parents are made as empty directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where in the sandbox: absolute, without `.` and `..`.
    #[serde(with = "os_text::path")]
    pub at: PathBuf,
    /// What stands there.
    pub kind: MountKind,
}

/// What stands at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum MountKind {
    /// A part of the host's file tree, recursively read-only, nosuid and nodev.
    Bind {
        /// What is shown.
        source: HostFile,
    },
    /// A symbolic link.
    Symlink {
        /// What it points to.
        #[serde(with = "os_text::path")]
        target: PathBuf,
    },
    /// A small read-only file made for this sandbox.
    File {
        /// Its content.
        content: String,
    },
    /// The code to run: a read-only file whose bytes travel beside the plan.
    Code,
    /// An empty read-only directory.
    Directory,
    /// Writable memory of bounded size: nosuid, nodev. Programs in it can be executed.
    Tmpfs {
        /// Bytes.
        size: u64,
        /// Files and directories.
        inodes: u64,
        /// Permission bits.
        mode: u32,
    },
    /// What long output of earlier runs of the same server was kept, read-only; stands at
    /// [`super::OUTPUTS`]. Only a server's launcher has it.
    Outputs,
    /// procfs, as [`super::ProcMode`] says.
    Proc,
    /// Our own minimal `/dev`, with `/dev/pts` and a `/dev/shm` of bounded size.
    Devices {
        /// Bytes in `/dev/shm`.
        shm: u64,
    },
}
