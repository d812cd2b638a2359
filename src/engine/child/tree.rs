//! The steps that make the sandbox's file tree.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{mkfifoat, symlinkat};

use super::Child;
use super::order::copy_code;
use crate::engine::masks::{self, Covers};
use crate::engine::report::{At, Done, StepError};
use crate::engine::sources::open_checked;
use crate::engine::start::{Begin, CodePlace, LATER};
use crate::engine::steps::{Device, PTS};
use crate::engine::{outputs, removal};
use crate::kernel::{self, Attributes};
use crate::plan::HostFile;
use crate::request::Request;

/// Read-only parts of the host.
const SHOWN: Attributes = Attributes::RDONLY.and(Attributes::NOSUID).and(Attributes::NODEV);
/// Writable memory.
pub(super) const WRITABLE: Attributes = Attributes::NOSUID.and(Attributes::NODEV);
/// The file system of the code, bytes: the code and what describes it.
const CODE: u64 = Request::MAX_CODE as u64 + (64 << 10);
/// Memory that holds no program.
pub(super) const DATA: Attributes = WRITABLE.and(Attributes::NOEXEC);

impl Child<'_> {
    pub(super) fn new_root(&mut self, inodes: u64) -> Done {
        let step = "make the root file system";
        let options = [
            ("size", "64m".to_owned()),
            ("nr_inodes", inodes.to_string()),
            ("mode", "0755".to_owned()),
        ];
        let root = kernel::new_filesystem("tmpfs", &options, WRITABLE).at(step, "")?;
        // Attached where the host's /proc was: it exists (the id maps were just written there),
        // nothing of the plan lies below it, and a fresh procfs is judged by the mounts *on* it.
        let proc =
            open("/proc", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
                .at(step, "")?;
        kernel::move_onto(root.as_fd(), proc.as_fd(), Path::new("")).at(step, "")?;
        self.root = Some(root);
        Ok(())
    }

    pub(super) fn in_template(&mut self) -> Done {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        self.root = Some(open("/", flags, Mode::empty()).at("enter the template", "")?);
        Ok(())
    }

    /// Makes the parents of `at`; returns `at` relative to the root.
    fn parents<'p>(&self, at: &'p Path) -> Result<&'p Path, StepError> {
        let relative = at.strip_prefix("/").unwrap_or(at);
        above(relative).map_or(Ok(()), |parent| self.mkdir(parent))?;
        Ok(relative)
    }

    /// A directory, and what is missing above it: most often nothing.
    fn mkdir(&self, relative: &Path) -> Done {
        let root = self.root()?;
        let make = || match mkdirat(root, relative, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno),
        };
        let made = match (make(), above(relative)) {
            (Err(Errno::ENOENT), Some(parent)) => {
                self.mkdir(parent)?;
                make()
            }
            (made, _) => made,
        };
        made.at("make directory", relative.display())
    }

    pub(super) fn directory(&self, at: &Path) -> Done {
        self.mkdir(self.parents(at)?)
    }

    pub(super) fn symlink(&self, at: &Path, target: &Path) -> Done {
        let relative = self.parents(at)?;
        symlinkat(target, self.root()?, relative).at("make symbolic link", at.display())
    }

    fn create(&self, at: &Path) -> Result<File, StepError> {
        let relative = self.parents(at)?;
        new_file(self.root()?, relative.as_os_str()).at("make file", at.display())
    }

    pub(super) fn file(&self, at: &Path, content: &[u8]) -> Done {
        self.create(at)?.write_all(content).at("write file", at.display())
    }

    /// On a file system of its own, since the root may be a template's.
    pub(super) fn code(&mut self, at: &Path) -> Done {
        let step = "copy the code to";
        let (Some(directory), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(StepError::new(step, at.display(), Errno::EINVAL));
        };
        let tree = self.tmpfs(directory, CODE, 4, 0o755, WRITABLE)?;
        // Through a second mount, or the first could not be sealed while it is open.
        let second =
            || kernel::clone_tree(tree.as_fd(), Path::new(""), false).at(step, at.display());
        match &self.launch.begin {
            Begin::Now(start) => {
                copy_code(start, &mut new_file(tree.as_fd(), name).at(step, at.display())?)?;
            }
            Begin::Ordered { warm: false, .. } => {
                self.own.code = Some(new_file(second()?.as_fd(), name).at(step, at.display())?);
            }
            Begin::Ordered { warm: true, .. } => {
                let directory = second()?;
                let file = new_file(directory.as_fd(), LATER.as_ref()).at(step, at.display())?;
                // To be opened by whoever has the code, outside.
                let mode = Mode::from_bits_truncate(0o644);
                mkfifoat(&directory, name, mode).at("make a FIFO", at.display())?;
                self.own.code_place = Some(CodePlace { file, directory });
            }
        }
        kernel::set_attributes(tree.as_fd(), SHOWN, false).at("make read-only", directory.display())
    }

    pub(super) fn bind(&self, at: &Path, source: &HostFile, number: usize) -> Done {
        let shown = source.path.display();
        let tree = match self.launch.sources.get(number) {
            Some(passed) => passed.try_clone().at("mount", &shown)?,
            None => {
                let (file, _) = open_checked(source)?;
                kernel::clone_tree(file.as_fd(), Path::new(""), true).at("mount", &shown)?
            }
        };
        kernel::set_attributes(tree.as_fd(), removal::attributes(SHOWN), true)
            .at("mount read-only", &shown)?;
        let relative = self.parents(at)?;
        if source.directory {
            self.mkdir(relative)?;
        } else {
            self.create(at)?;
        }
        kernel::move_onto(tree.as_fd(), self.root()?, relative)
            .at("mount", format_args!("{shown} at {}", at.display()))
    }

    pub(super) fn tmpfs(
        &self,
        at: &Path,
        size: u64,
        inodes: u64,
        mode: u32,
        attributes: Attributes,
    ) -> Result<OwnedFd, StepError> {
        let step = "mount a tmpfs at";
        let options = [
            ("size", size.to_string()),
            ("nr_inodes", inodes.to_string()),
            ("mode", format!("{mode:o}")),
        ];
        let tree = kernel::new_filesystem("tmpfs", &options, attributes).at(step, at.display())?;
        self.attach(&tree, at, step)?;
        Ok(tree)
    }

    pub(super) fn outputs(&self, at: &Path) -> Done {
        let step = "mount the outputs at";
        let made = self.parent.outputs.ok_or(Errno::ENODEV).at(step, at.display())?;
        let tree = outputs::open_copy(made).at(step, at.display())?;
        self.attach(&tree, at, step)
    }

    fn attach(&self, tree: &OwnedFd, at: &Path, step: &str) -> Done {
        let relative = self.parents(at)?;
        self.mkdir(relative)?;
        kernel::move_onto(tree.as_fd(), self.root()?, relative).at(step, at.display())
    }

    pub(super) fn make_covers(&self) -> Done {
        let place = Path::new(PTS);
        drop(self.create(&place.join(masks::FILE))?);
        self.directory(&place.join(masks::DIRECTORY))
    }

    pub(super) fn open_covers(&mut self) -> Done {
        let place = Path::new(PTS).strip_prefix("/").unwrap_or(Path::new(PTS));
        self.covers = Some(Covers::open(self.root()?, place)?);
        Ok(())
    }

    pub(super) fn proc(&self) -> Done {
        let step = "mount a fresh procfs at";
        let at = Path::new("/proc");
        let tree = kernel::new_filesystem("proc", &[], DATA).at(step, at.display())?;
        self.attach(&tree, at, step)
    }

    pub(super) fn device(&self, device: &Device) -> Done {
        let path = format!("/dev/{}", device.name);
        let step = "mount device";
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let node = open(path.as_str(), flags, Mode::empty()).at(step, &path)?;
        // A name is no proof: a link or a file planted at /dev/null would be shown inside
        // (CVE-2025-31133).
        let stat = fstat(&node).at(step, &path)?;
        let is_device =
            SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFCHR;
        if !is_device || stat.st_rdev != nix::sys::stat::makedev(device.major, device.minor) {
            return Err(StepError::new(
                step,
                format_args!("{path} (it is another device)"),
                Errno::ENODEV,
            ));
        }
        let tree = kernel::clone_tree(node.as_fd(), Path::new(""), false).at(step, &path)?;
        let attributes = Attributes::NOSUID.and(Attributes::NOEXEC);
        kernel::set_attributes(tree.as_fd(), attributes, false).at(step, &path)?;
        drop(self.create(Path::new(&path))?);
        kernel::move_onto(tree.as_fd(), self.root()?, Path::new(&path[1..])).at(step, &path)
    }

    pub(super) fn device_links(&self) -> Done {
        let links = [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/ptmx", "pts/ptmx"),
        ];
        links.iter().try_for_each(|(at, target)| self.symlink(Path::new(at), Path::new(target)))
    }

    pub(super) fn pts(&self) -> Done {
        let step = "mount a devpts at";
        let at = Path::new(PTS);
        let options = [
            ("newinstance", String::new()),
            ("ptmxmode", "0666".to_owned()),
            ("mode", "0620".to_owned()),
            ("max", "64".to_owned()),
        ];
        let attributes = Attributes::NOSUID.and(Attributes::NOEXEC);
        let tree = kernel::new_filesystem("devpts", &options, attributes).at(step, at.display())?;
        self.attach(&tree, at, step)
    }

    pub(super) fn seal_root(&self) -> Done {
        kernel::set_attributes(self.root()?, SHOWN, false).at("make the root read-only", "")
    }

    pub(super) fn mask_proc(&mut self) -> Done {
        match self.covers.take() {
            Some(covers) => covers.mask(self.root()?),
            None => Err(StepError::new("mask", "(without a cover)", Errno::ENOTRECOVERABLE)),
        }
    }
}

/// What a relative path lies in, if not in the root itself.
fn above(relative: &Path) -> Option<&Path> {
    relative.parent().filter(|parent| !parent.as_os_str().is_empty())
}

fn new_file(below: BorrowedFd<'_>, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(below, name, flags, Mode::from_bits_truncate(0o444)).map(File::from)
}
