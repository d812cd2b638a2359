//! The Nix store: which paths are legal, where they lie on this host, how a closure is shown.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ask::{AskError, Question};
use super::source::{self, SourceError};
use super::{Sources, links, place};
use crate::plan::{Mount, MountKind};

/// Where stores are unless said otherwise.
pub(super) const STORE_DIR: &str = "/nix/store";
/// Where `nix-store` is found when it is not in `PATH`.
const NIX_BINS: [&str; 2] = ["/nix/var/nix/profiles/default/bin", "/run/current-system/sw/bin"];
/// How `nix-store` reaches its store; the only variables besides `PATH` and `HOME` that it sees.
const NIX_VARIABLES: [&str; 5] =
    ["NIX_REMOTE", "NIX_DAEMON_SOCKET_PATH", "NIX_STORE_DIR", "NIX_STATE_DIR", "NIX_CONF_DIR"];
/// `nix-store -qR` took 70 to 110 ms here; a loaded daemon with a cold disk takes longer.
const QUERY_LIMIT: Duration = Duration::from_secs(30);
/// Characters of a hash: all but e, o, u and t.
const NIX_BASE32: &[u8] = b"0123456789abcdfghijklmnpqrsvwxyz";

/// What is wrong with a closure.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A store where none can be.
    #[error("{} cannot be a store: {why}", path.display())]
    Directory {
        /// The store.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No store path.
    #[error("{path:?} is no path of the store {}", store.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// A path that stands twice.
    #[error("{} stands in the closure twice", .0.display())]
    Twice(PathBuf),
    /// A path that is no longer there.
    #[error("{}: garbage collected; rebuild it", .0.display())]
    Collected(PathBuf),
    /// A file that cannot be shown.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No `nix-store` to ask.
    #[error("there is no `nix-store` to ask for the closure of {}", .0.display())]
    NoNix(PathBuf),
    /// `nix-store` did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// One store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Store {
    dir: PathBuf,
    root: Option<PathBuf>,
}

impl Store {
    /// The store at `dir`, as the sandbox sees it; with `root`, the chroot store that has it at
    /// `root/dir` on this host.
    ///
    /// # Errors
    /// [`StoreError::Directory`]: not plain, or where the sandbox has something else.
    pub(super) fn new(dir: PathBuf, root: Option<PathBuf>) -> Result<Self, StoreError> {
        let wrong = |path: &Path, why: &str| {
            Err(StoreError::Directory { path: path.to_owned(), why: why.to_owned() })
        };
        for path in [Some(&dir), root.as_ref()].into_iter().flatten() {
            if !place::is_plain(path) {
                return wrong(path, "it must be an absolute path without `.` and `..`");
            }
        }
        match place::taken_at(&dir) {
            Some(place) if place != "/nix" || Path::new("/nix").starts_with(&dir) => {
                return wrong(&dir, &format!("the sandbox has something else at {place}"));
            }
            _ => {}
        }
        Ok(Self { dir, root })
    }

    /// This host's own.
    pub(super) fn of_host() -> Self {
        Self { dir: PathBuf::from(STORE_DIR), root: None }
    }

    /// Where a path of the store lies on this host.
    pub(super) fn on_host(&self, path: &Path) -> PathBuf {
        self.root.as_ref().map_or_else(|| path.to_owned(), |root| links::below(root)(path))
    }

    /// Whether it lies elsewhere on this host than where the sandbox sees it.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.on_host(&self.dir) != self.dir
    }

    /// Where the sandbox sees a file that lies in the store on this host.
    pub(super) fn as_seen(&self, host: &Path) -> Option<PathBuf> {
        let seen = match &self.root {
            None => host.to_owned(),
            Some(root) => Path::new("/").join(host.strip_prefix(root).ok()?),
        };
        seen.starts_with(&self.dir).then_some(seen)
    }

    /// The store path that holds `path`.
    pub(super) fn holder(&self, path: &Path) -> Option<PathBuf> {
        let inner = path.strip_prefix(&self.dir).ok()?;
        inner.iter().next().map(|name| self.dir.join(name))
    }

    /// Checks a list of paths and shows each at its place: directories and files bound, symbolic
    /// links recreated, since a bind would follow them.
    ///
    /// # Errors
    /// [`StoreError::Path`], [`StoreError::Twice`], [`StoreError::Collected`] and
    /// [`StoreError::Source`].
    pub(super) fn mounts(&self, closure: &[PathBuf]) -> Result<Vec<Mount>, StoreError> {
        let mut seen = BTreeSet::new();
        let mut mounts = Vec::with_capacity(closure.len());
        for path in closure {
            self.check(path)?;
            if !seen.insert(path) {
                return Err(StoreError::Twice(path.clone()));
            }
            mounts.push(Mount { at: path.clone(), kind: self.show(path)? });
        }
        Ok(mounts)
    }

    fn show(&self, path: &Path) -> Result<MountKind, StoreError> {
        let host = self.on_host(path);
        if let Ok(target) = fs::read_link(&host) {
            return Ok(MountKind::Symlink { target });
        }
        match source::check(&host) {
            Ok(source) => Ok(MountKind::Bind { source }),
            Err(SourceError::Io { errno: nix::Error::ENOENT, .. }) => {
                Err(StoreError::Collected(host))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses what is no direct child of the store with a legal name: 32 characters of hash, a
    /// dash, and letters, digits or `+-._?=`; at most 211 bytes (Nix, `checkName` in `path.cc`).
    pub(super) fn check(&self, path: &Path) -> Result<(), StoreError> {
        let legal = |name: &[u8]| {
            let (hash, rest) = name.split_at_checked(32)?;
            let name = rest.strip_prefix(b"-")?;
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._?=".contains(byte);
            let length = (1..=211).contains(&name.len());
            let hash = hash.iter().all(|byte| NIX_BASE32.contains(byte));
            (hash && length && name[0] != b'.' && name.iter().all(plain)).then_some(())
        };
        let child = place::is_plain(path) && path.parent() == Some(&self.dir);
        let name = path.file_name().map(OsStr::as_bytes);
        match name.filter(|_| child).and_then(legal) {
            Some(()) => Ok(()),
            None => Err(StoreError::Path { path: path.to_owned(), store: self.dir.clone() }),
        }
    }

    /// Everything that `paths` need at run time, themselves included, as `nix-store -qR` knows it.
    ///
    /// # Errors
    /// [`StoreError::NoNix`] and [`StoreError::Ask`].
    pub(super) fn requisites(
        &self,
        paths: &[PathBuf],
        sources: &Sources,
    ) -> Result<Vec<PathBuf>, StoreError> {
        let first = paths.first().cloned().unwrap_or_default();
        let program = nix_program(sources, "nix-store").ok_or(StoreError::NoNix(first))?;
        let mut arguments = Vec::new();
        if let Some(root) = &self.root {
            arguments.extend([OsStr::new("--store"), root.as_os_str()]);
        }
        arguments.push(OsStr::new("-qR"));
        arguments.extend(paths.iter().map(|path| path.as_os_str()));
        let own = |name| std::env::var_os(name).map(|value| (name, value));
        let variables = sources.variables().chain(NIX_VARIABLES.into_iter().filter_map(own));
        let variables = variables.collect();
        let question = Question { program: &program, arguments, variables, limit: QUERY_LIMIT };
        let answer = question.ask()?;
        let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(|line| PathBuf::from(OsString::from_vec(line.to_vec()))).collect())
    }
}

/// A program of Nix's, in `PATH` or where Nix puts it.
pub(super) fn nix_program(sources: &Sources, name: &str) -> Option<PathBuf> {
    let usual = NIX_BINS.iter().map(|dir| Path::new(dir).join(name));
    sources.candidates(name).chain(usual.filter(|path| path.is_file())).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdfghijklmnpqrsvwxyz";

    #[test]
    fn only_direct_children_with_a_hash_and_a_legal_name_are_store_paths() {
        let store = Store::of_host();
        for name in ["a", "python3-3.12.1", "x+y_z?=.drv", &"n".repeat(211)] {
            store.check(&PathBuf::from(format!("/nix/store/{HASH}-{name}"))).expect(name);
        }
        let e = HASH.replace('0', "e");
        for path in [
            format!("/nix/store/{HASH}"),
            format!("/nix/store/{HASH}-"),
            format!("/nix/store/{HASH}-.x"),
            format!("/nix/store/{HASH}-a b"),
            format!("/nix/store/{HASH}-{}", "n".repeat(212)),
            format!("/nix/store/{e}-a"),
            format!("/nix/store/{HASH}-a/bin"),
            format!("/nix/store//{HASH}-a"),
            format!("/nix/store/../store/{HASH}-a"),
            format!("nix/store/{HASH}-a"),
            format!("/home/{HASH}-a"),
            "/nix/store".to_owned(),
            "/etc/shadow".to_owned(),
        ] {
            let says = format!("{path:?} is no path of the store /nix/store");
            assert_eq!(store.check(Path::new(&path)).expect_err(&path).to_string(), says);
        }
    }

    #[test]
    fn a_store_stands_where_nothing_else_does() {
        let new = |dir: &str| Store::new(PathBuf::from(dir), None).map(|_| ());
        new("/nix/store").expect("usual");
        new("/opt/store").expect("elsewhere");
        for (dir, place) in [("/", "/proc"), ("/etc", "/etc"), ("/nix", "/nix"), ("/tmp/x", "/tmp")]
        {
            let says =
                format!("{dir} cannot be a store: the sandbox has something else at {place}");
            assert_eq!(new(dir).expect_err(dir).to_string(), says);
        }
        let says = "a/b cannot be a store: it must be an absolute path without `.` and `..`";
        assert_eq!(new("a/b").expect_err("relative").to_string(), says);
    }
}
