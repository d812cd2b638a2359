//! The only way to a [`Plan`], and what it refuses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Access, Command, Identity, Jail, LimitError, Limits, Mount, MountKind, OUTPUTS, Plan};

/// Why a plan must not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A place in the sandbox that is no absolute path without `.` and `..`.
    #[error("{0:?} is no place in a sandbox: it must be an absolute path without `.` and `..`")]
    NotAbsolute(PathBuf),
    /// Two things at one place.
    #[error("{0:?} is named twice")]
    Twice(PathBuf),
    /// A mount below something that cannot have one.
    #[error("{0:?} cannot be mounted below {1:?}")]
    Below(PathBuf, PathBuf),
    /// A mount onto a place that the engine makes itself.
    #[error("nothing can be mounted at {0:?}: the sandbox makes it itself")]
    Reserved(PathBuf),
    /// Writable memory where only the host's files may be.
    #[error("{0:?} cannot be writable")]
    Writable(PathBuf),
    /// A part of the host that no sandbox may show.
    #[error("{0:?} of the host cannot be shown in a sandbox")]
    Source(PathBuf),
    /// A limit out of range.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The payload would be root for the host.
    #[error("a sandbox never runs as uid 0 of the host")]
    HostRoot,
    /// The payload would be root inside, which no step needs.
    #[error("a sandbox never runs as uid 0, inside neither")]
    InsideRoot,
    /// An id that for the kernel is none: a call that shall set it leaves the old one (setresuid(2)).
    #[error("{} is no id of a user or group", u32::MAX)]
    NoId,
    /// Memory without a size, which for the kernel is memory without a limit (tmpfs(5)).
    #[error("writable memory at {0:?} needs a size and a number of files above 0")]
    Unlimited(PathBuf),
    /// Permission bits that are none, or that change who somebody is.
    #[error("{0:?} cannot have the mode {1:o}; the highest is 1777")]
    Mode(PathBuf, u32),
    /// No program.
    #[error("there is no command to run")]
    NoCommand,
    /// A NUL byte, which no argument, variable or path can hold.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// What execve(2) would pass on as the name of another variable, or of none.
    #[error("{0:?} is no name of an environment variable")]
    Variable(OsString),
    /// A jail that is no program of its store.
    #[error("{0:?} is no program of its store")]
    Jail(PathBuf),
    /// A hostname the kernel would refuse or a program would trip over.
    #[error("{0:?} is no hostname")]
    Hostname(String),
}

/// A plan before it was checked; the same fields, all public. Also the form on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanBuilder {
    /// The environment's name.
    pub environment: String,
    /// Who the payload is.
    pub identity: Identity,
    /// Everything in the file tree, in any order.
    pub mounts: Vec<Mount>,
    /// How much the payload may use.
    pub limits: Limits,
    /// What it may call, and which walls must stand.
    pub access: Access,
    /// What is run.
    pub command: Command,
}

/// Writable memory may stand only here.
const WRITABLE: [&str; 2] = ["/tmp", "/workspace"];
/// Host directories that are never shown, themselves or as a whole: kernel interfaces, sockets and
/// the root.
const NEVER_SHOWN: [&str; 5] = ["/", "/proc", "/sys", "/dev", "/run"];

impl PlanBuilder {
    /// Checks everything and makes the plan.
    ///
    /// # Errors
    /// The first thing that must not be.
    pub fn build(mut self) -> Result<Plan, PlanError> {
        self.check_identity()?;
        self.limits.check()?;
        self.check_command()?;
        // By their bytes, which is many times faster than by their components: a parent comes before
        // its children here too.
        self.mounts.sort_by(|a, b| a.at.as_os_str().cmp(b.at.as_os_str()));
        self.check_mounts()?;
        let Self { environment, identity, mounts, limits, access, command } = self;
        Ok(Plan { environment, identity, mounts: mounts.into(), limits, access, command })
    }

    fn check_identity(&self) -> Result<(), PlanError> {
        let Identity { inside, outside, hostname } = &self.identity;
        if outside.uid == 0 {
            return Err(PlanError::HostRoot);
        }
        if inside.uid == 0 {
            return Err(PlanError::InsideRoot);
        }
        if [inside.uid, inside.gid, outside.uid, outside.gid].contains(&u32::MAX) {
            return Err(PlanError::NoId);
        }
        let fits = (1..=64).contains(&hostname.len());
        if !fits || !hostname.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(PlanError::Hostname(hostname.clone()));
        }
        Ok(())
    }

    fn check_command(&self) -> Result<(), PlanError> {
        let Command { arguments, variables, directory, jail } = &self.command;
        if arguments.first().is_none_or(|program| program.is_empty()) {
            return Err(PlanError::NoCommand);
        }
        if arguments.iter().any(|argument| has_nul(argument)) {
            return Err(PlanError::Nul("an argument"));
        }
        if variables.iter().any(|(name, value)| has_nul(name) || has_nul(value)) {
            return Err(PlanError::Nul("an environment variable"));
        }
        let odd = |name: &&OsString| name.is_empty() || name.as_bytes().contains(&b'=');
        if let Some(name) = variables.keys().find(odd) {
            return Err(PlanError::Variable(name.clone()));
        }
        if let Some(Jail { program, store }) = jail {
            check_place(store)?;
            check_place(&program.path)?;
            if !program.path.starts_with(store) || program.directory {
                return Err(PlanError::Jail(program.path.clone()));
            }
        }
        check_place(directory)
    }

    /// The mounts are sorted.
    fn check_mounts(&self) -> Result<(), PlanError> {
        let mut last: Option<&Path> = None;
        for Mount { at, kind } in &self.mounts {
            check_place(at)?;
            check_kind(at, kind)?;
            if last.is_some_and(|last| last.as_os_str() == at.as_os_str()) {
                return Err(PlanError::Twice(at.clone()));
            }
            // A closure lies side by side in one store.
            if last.is_none_or(|last| parents(last).last() != parents(at).last()) {
                self.check_parents(at)?;
            }
            last = Some(at);
        }
        self.check_code()
    }

    fn check_parents(&self, at: &Path) -> Result<(), PlanError> {
        for parent in parents(at) {
            let found = self.mounts.binary_search_by(|mount| mount.at.as_os_str().cmp(parent));
            if found.is_ok_and(|found| self.mounts[found].kind != MountKind::Directory) {
                return Err(PlanError::Below(at.to_owned(), parent.into()));
            }
        }
        Ok(())
    }

    /// The code has its directory for itself: it is a file system of its own.
    fn check_code(&self) -> Result<(), PlanError> {
        for code in self.mounts.iter().filter(|mount| mount.kind == MountKind::Code) {
            let directory = code.at.parent().unwrap_or(Path::new("/"));
            if directory == Path::new("/") {
                return Err(PlanError::Reserved(code.at.clone()));
            }
            let others = self.mounts.iter().filter(|other| other.at != code.at);
            if let Some(other) = others.into_iter().find(|other| other.at.starts_with(directory)) {
                return Err(PlanError::Below(other.at.clone(), directory.to_owned()));
            }
        }
        Ok(())
    }
}

/// What a place lies in, but for the root: the longest last.
fn parents(at: &Path) -> impl Iterator<Item = &OsStr> {
    let bytes = at.as_os_str().as_bytes();
    let ends = bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    ends.map(|(end, _)| OsStr::from_bytes(&bytes[..end]))
}

fn check_kind(at: &Path, kind: &MountKind) -> Result<(), PlanError> {
    let made_here = |place: &str| lies_in(at, place);
    match kind {
        MountKind::Proc => same_place(at, "/proc"),
        MountKind::Outputs => same_place(at, OUTPUTS),
        MountKind::Devices { shm: 0 } => Err(PlanError::Unlimited(at.to_owned())),
        MountKind::Devices { .. } => same_place(at, "/dev"),
        _ if made_here("/proc")
            || made_here("/dev")
            || made_here("/sys")
            || at == Path::new("/") =>
        {
            Err(PlanError::Reserved(at.to_owned()))
        }
        MountKind::Tmpfs { size, inodes, mode } => check_tmpfs(at, *size, *inodes, *mode),
        MountKind::Bind { source } => check_source(&source.path),
        MountKind::Symlink { target } => no_nul(target),
        MountKind::File { .. } | MountKind::Code | MountKind::Directory => Ok(()),
    }
}

fn check_tmpfs(at: &Path, size: u64, inodes: u64, mode: u32) -> Result<(), PlanError> {
    if !WRITABLE.iter().any(|place| at == Path::new(place)) {
        return Err(PlanError::Writable(at.to_owned()));
    }
    if size == 0 || inodes == 0 {
        return Err(PlanError::Unlimited(at.to_owned()));
    }
    if mode > 0o1777 {
        return Err(PlanError::Mode(at.to_owned(), mode));
    }
    Ok(())
}

fn same_place(at: &Path, place: &str) -> Result<(), PlanError> {
    if at == Path::new(place) { Ok(()) } else { Err(PlanError::Reserved(at.to_owned())) }
}

fn check_source(path: &Path) -> Result<(), PlanError> {
    check_place(path)?;
    if NEVER_SHOWN.iter().any(|place| lies_in(path, place)) {
        return Err(PlanError::Source(path.to_owned()));
    }
    Ok(())
}

fn check_place(path: &Path) -> Result<(), PlanError> {
    no_nul(path)?;
    if is_plain(path) { Ok(()) } else { Err(PlanError::NotAbsolute(path.to_owned())) }
}

/// Whether `path` is absolute and spelt in the one plain way: no `.`, `..`, `//`, trailing `/` or
/// NUL, and short enough for the kernel (4,096 bytes with its NUL).
pub(crate) fn is_plain(path: &Path) -> bool {
    match path.as_os_str().as_bytes() {
        b"/" => true,
        [b'/', rest @ ..] if rest.len() < 4095 && !rest.contains(&0) => {
            rest.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
        }
        _ => false,
    }
}

/// Whether a plain path is `place` or below it; in the root lies nothing but itself.
pub(crate) fn lies_in(path: &Path, place: &str) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(place.as_bytes());
    rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

fn no_nul(path: &Path) -> Result<(), PlanError> {
    if has_nul(path.as_os_str()) { Err(PlanError::Nul("a path")) } else { Ok(()) }
}

fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}

impl TryFrom<PlanBuilder> for Plan {
    type Error = PlanError;

    fn try_from(builder: PlanBuilder) -> Result<Self, PlanError> {
        builder.build()
    }
}

impl From<Plan> for PlanBuilder {
    fn from(plan: Plan) -> Self {
        let Plan { environment, identity, mounts, limits, access, command } = plan;
        Self { environment, identity, mounts: mounts.to_vec(), limits, access, command }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{FileIdentity, HostFile, Ids, ProcMode};
    use super::*;
    use crate::policy::{Profile, Wearer};

    fn mount(at: &str, kind: MountKind) -> Mount {
        Mount { at: PathBuf::from(at), kind }
    }

    fn bind(path: &str) -> MountKind {
        let identity = FileIdentity { device: 1, inode: 2 };
        MountKind::Bind {
            source: HostFile { path: PathBuf::from(path), directory: true, identity },
        }
    }

    const TMPFS: MountKind = MountKind::Tmpfs { size: 1 << 20, inodes: 64, mode: 0o755 };

    fn builder(mounts: Vec<Mount>) -> PlanBuilder {
        PlanBuilder {
            environment: "shell".to_owned(),
            identity: Identity::of(Ids { uid: 1002, gid: 1002 }),
            mounts,
            limits: Limits::default(),
            access: Access {
                profile: Profile::Default,
                wearer: Wearer::Shell,
                proc: ProcMode::Fresh,
                require: Default::default(),
            },
            command: Command {
                arguments: vec!["/bin/true".into()],
                variables: BTreeMap::new(),
                directory: PathBuf::from("/workspace"),
                jail: None,
            },
        }
    }

    fn refused(at: &str, kind: MountKind) -> PlanError {
        builder(vec![mount(at, kind)]).build().expect_err(at)
    }

    #[test]
    fn writable_memory_stands_only_in_workspace_and_tmp() {
        for at in ["/project", "/nix/store", "/usr", "/etc", "/workspace/x", "/run"] {
            assert_eq!(refused(at, TMPFS), PlanError::Writable(PathBuf::from(at)));
        }
        builder(vec![mount("/tmp", TMPFS), mount("/workspace", TMPFS)]).build().expect("plan");
    }

    #[test]
    fn nothing_is_mounted_over_proc_dev_sys_or_the_root() {
        for at in ["/", "/proc", "/proc/self", "/dev", "/dev/shm", "/sys"] {
            assert_eq!(refused(at, bind("/srv")), PlanError::Reserved(PathBuf::from(at)));
        }
        assert_eq!(refused("/p", MountKind::Proc), PlanError::Reserved(PathBuf::from("/p")));
        let others = ["/process", "/dev-tools", "/system"].map(|at| mount(at, bind("/srv-proc")));
        builder(others.to_vec()).build().expect("only begins alike");
    }

    #[test]
    fn kernel_interfaces_and_the_root_of_the_host_are_never_shown() {
        for path in ["/", "/proc", "/proc/1/root", "/sys", "/dev/shm", "/run", "/run/user/1"] {
            assert_eq!(refused("/project", bind(path)), PlanError::Source(PathBuf::from(path)));
        }
    }

    #[test]
    fn plain_is_spelt_in_one_way() {
        for path in ["/", "/a", "/a b\n:\\/c", "/..a"] {
            assert!(is_plain(Path::new(path)), "{path:?}");
        }
        for path in ["", "a", "..", "/a/", "//", "//a", "/a//b", "/a/./b", "/./a", "/a/.", "/a/.."]
        {
            assert!(!is_plain(Path::new(path)), "{path:?}");
        }
        assert!(!is_plain(Path::new("/a\0b")));
        assert!(is_plain(Path::new(&format!("/{}", "x".repeat(4094)))));
        assert!(!is_plain(Path::new(&format!("/{}", "x".repeat(4095)))));
    }

    #[test]
    fn places_are_absolute_and_plain() {
        for at in ["project", "", "..", "/a/../proc", "/a/./b", "//", "/a/", "/a//b", "/a/."] {
            assert_eq!(refused(at, bind("/srv")), PlanError::NotAbsolute(PathBuf::from(at)));
        }
        assert_eq!(refused("/a\0b", bind("/srv")), PlanError::Nul("a path"));
        let long = format!("/{}", "x".repeat(4096));
        assert!(matches!(refused(&long, bind("/srv")), PlanError::NotAbsolute(_)));
    }

    #[test]
    fn nothing_stands_twice_or_below_another_mount() {
        let twice = vec![mount("/project", bind("/a")), mount("/project", bind("/b"))];
        let error = builder(twice).build().expect_err("twice");
        assert_eq!(error, PlanError::Twice(PathBuf::from("/project")));
        let beside = [mount("/project-x", bind("/a")), mount("/project", bind("/b"))];
        builder(beside.to_vec()).build().expect("only begins alike");
        let mut below = beside.to_vec();
        below.push(mount("/project/x", bind("/a")));
        let error = builder(below).build().expect_err("below");
        assert_eq!(error, PlanError::Below(PathBuf::from("/project/x"), PathBuf::from("/project")));
    }

    #[test]
    fn host_root_is_no_identity() {
        let mut root = builder(vec![]);
        root.identity.outside = Ids { uid: 0, gid: 1 };
        assert_eq!(root.build().expect_err("root"), PlanError::HostRoot);
        let mut root = builder(vec![]);
        root.identity.inside = Ids { uid: 0, gid: 1 };
        assert_eq!(root.build().expect_err("root"), PlanError::InsideRoot);
    }

    #[test]
    fn a_variable_has_a_name_that_ends_where_its_value_begins() {
        for name in ["", "A=B", "="] {
            let mut odd = builder(vec![]);
            odd.command.variables.insert(name.into(), "x=y".into());
            assert_eq!(odd.build().expect_err(name), PlanError::Variable(name.into()));
        }
    }

    #[test]
    fn a_jail_is_a_program_of_its_store() {
        let jail = |path: &str, directory, store: &str| {
            let identity = FileIdentity { device: 1, inode: 2 };
            let program = HostFile { path: PathBuf::from(path), directory, identity };
            let mut builder = builder(vec![]);
            builder.command.jail = Some(Jail { program, store: PathBuf::from(store) });
            builder.build().map(|plan| plan.command().jail.is_some())
        };
        assert_eq!(jail("/nix/store/x/bin/run", false, "/nix/store"), Ok(true));
        for (path, directory) in [("/usr/bin/run", false), ("/nix/store/x", true)] {
            let no_program = Err(PlanError::Jail(PathBuf::from(path)));
            assert_eq!(jail(path, directory, "/nix/store"), no_program);
        }
        let plain = Err(PlanError::NotAbsolute(PathBuf::from("store")));
        assert_eq!(jail("store/x", false, "store"), plain);
    }

    #[test]
    fn what_the_kernel_takes_for_leave_it_or_no_limit_is_refused() {
        for at in 0..4 {
            let mut unset = builder(vec![]);
            let Identity { inside, outside, .. } = &mut unset.identity;
            *[&mut inside.uid, &mut inside.gid, &mut outside.uid, &mut outside.gid][at] = u32::MAX;
            assert_eq!(unset.build().expect_err("-1"), PlanError::NoId);
        }
        let unlimited = |at: &str| PlanError::Unlimited(PathBuf::from(at));
        let tmpfs = |size, inodes, mode| MountKind::Tmpfs { size, inodes, mode };
        assert_eq!(refused("/tmp", tmpfs(0, 64, 0o755)), unlimited("/tmp"));
        assert_eq!(refused("/workspace", tmpfs(1 << 20, 0, 0o755)), unlimited("/workspace"));
        assert_eq!(refused("/dev", MountKind::Devices { shm: 0 }), unlimited("/dev"));
        let mode = PlanError::Mode(PathBuf::from("/tmp"), 0o4755);
        assert_eq!(refused("/tmp", tmpfs(1 << 20, 64, 0o4755)), mode);
    }

    #[test]
    fn a_plan_survives_the_wire_also_with_names_that_are_no_text() {
        use std::os::unix::ffi::OsStringExt;
        let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/srv/\xff a\nb:c\\d".to_vec()));
        let identity = FileIdentity { device: 1, inode: 2 };
        let source = HostFile { path: odd, directory: true, identity };
        let plan =
            builder(vec![mount("/project", MountKind::Bind { source })]).build().expect("ok");
        let wire = serde_json::to_string(&plan).expect("to JSON");
        assert_eq!(serde_json::from_str::<Plan>(&wire).expect("from JSON"), plan);
    }

    #[test]
    fn a_plan_off_the_wire_is_checked_again() {
        let plan = builder(vec![mount("/tmp", TMPFS)]).build().expect("plan");
        let wire = serde_json::to_string(&plan).expect("to JSON").replace("/tmp", "/etc");
        let error = serde_json::from_str::<Plan>(&wire).expect_err("forged");
        assert!(error.to_string().contains("\"/etc\" cannot be writable"), "{error}");
    }
}
