//! Artifacts: environments that Nix built, each a directory with a `metadata.json`.
//!
//! An artifact is data from a file, not from us: whatever is odd about it makes it be skipped, with
//! a reason that names the file. It shows nothing but paths of a Nix store.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::source::{self, SourceError};
use super::store::{STORE_DIR, Store, StoreError};
use super::{Environment, Interpreter, Jails, Origin, Receipt, Sources, links};
use crate::plan::{Jail, LimitError, LimitOverrides, Limits, Mount, MountKind};

/// The most that `metadata.json` may hold, bytes: some 15,000 store paths.
const MAX_METADATA: u64 = 1 << 20;
/// The version of `metadata.json` that is read.
const VERSION: u32 = 1;
/// The agreement with the jails beside it that is known: see `nix/backends/jail.nix`.
const JAIL: u32 = 1;

/// An artifact that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file at fault.
    pub path: PathBuf,
    /// What is wrong with it, in a sentence that names it.
    pub reason: String,
}

/// What is wrong with an artifact.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// A file that cannot or must not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It leads to a directory that is none.
    #[error("{} leads to /, which is no artifact", .0.display())]
    Root(PathBuf),
    /// `metadata.json` is not what it should be.
    #[error("{}: {problem}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The closure is broken.
    #[error("{}: {error}", path.display())]
    Closure {
        /// The file that names it.
        path: PathBuf,
        /// How.
        error: StoreError,
    },
    /// The closure is unknown.
    #[error(
        "{} has no `closure`, and `nix-store -qR` could not name it: {error}; rebuild it",
        path.display()
    )]
    NoClosure {
        /// The file that lacks it.
        path: PathBuf,
        /// What failed.
        error: StoreError,
    },
}

/// `metadata.json`, version 1. Fields that are not known are left alone: later versions of the
/// builder may write more.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Metadata {
    /// The environment's name: `[A-Za-z0-9_.-]{1,64}`.
    name: String,
    /// The language it speaks.
    interpreter_type: Interpreter,
    /// Which version of this format it is.
    version: Option<u32>,
    /// Wall-clock limit, seconds; the predecessor's form of `limits.time`.
    timeout_seconds: Option<f64>,
    /// Memory limit, MiB; the predecessor's form of `limits.memory`.
    memory_mb: Option<u64>,
    /// Limits; over the two above.
    #[serde(default)]
    limits: LimitOverrides,
    /// The store path with `bin/`; the artifact itself if it is not named.
    env: Option<PathBuf>,
    /// Every store path that is shown.
    closure: Option<Vec<PathBuf>>,
    /// Where the sandbox sees the store.
    store_dir: Option<PathBuf>,
    /// The chroot store that holds it on this host.
    store_root: Option<PathBuf>,
    /// One line for people and models.
    description: Option<String>,
    /// Which agreement `bin/run` and `bin/session-run` keep.
    jail: Option<u32>,
    /// Environment variables of its own.
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

/// An artifact whose `metadata.json` was read; its closure is looked at when it is used.
#[derive(Debug, Clone)]
pub(super) struct Artifact {
    /// Without links in its path.
    path: PathBuf,
    store: Store,
    metadata: Metadata,
    limits: LimitOverrides,
}

/// Reads all artifacts of the directory `dir`, in the order of their file names.
pub(super) fn find(dir: &Path, sources: &Sources) -> (Vec<Artifact>, Vec<Skipped>) {
    let mut found = Vec::new();
    let mut skipped = Vec::new();
    let mut skip = |path: &Path, error: ArtifactError| {
        skipped.push(Skipped { path: path.to_owned(), reason: error.to_string() });
    };
    if !dir.exists() {
        return (found, skipped);
    }
    if let Err(error) = source::check_trusted(dir, sources.euid) {
        skip(dir, error.into());
        return (found, skipped);
    }
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>(),
        Err(error) => {
            let errno = nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            skip(dir, SourceError::Io { path: dir.to_owned(), errno }.into());
            Vec::new()
        }
    };
    entries.sort();
    let hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    for path in entries.iter().filter(|path| !hidden(path)) {
        match Artifact::read(path, sources) {
            Ok(artifact) => found.push(artifact),
            Err(error) => skip(path, error),
        }
    }
    (found, skipped)
}

impl Artifact {
    /// Reads the artifact at `entry`: a directory, or a link to one.
    ///
    /// # Errors
    /// Whatever is odd about it.
    pub(super) fn read(entry: &Path, sources: &Sources) -> Result<Self, ArtifactError> {
        let path = locate(entry, sources)?;
        if path == Path::new("/") {
            return Err(ArtifactError::Root(entry.to_owned()));
        }
        if !source::check(&path)?.directory {
            let (kind, wanted) = ("regular file", "directory");
            return Err(SourceError::Kind { path, kind, wanted }.into());
        }
        source::check_trusted(&path, sources.euid)?;
        let file = path.join("metadata.json");
        let text = source::read_small(&file, false, MAX_METADATA, sources.euid)?;
        let wrong = |problem: String| ArtifactError::Metadata { path: file.clone(), problem };
        let metadata = Metadata::parse(&text).map_err(wrong)?;
        let limits = metadata.check().map_err(wrong)?;
        let dir = metadata.store_dir.clone().unwrap_or_else(|| PathBuf::from(STORE_DIR));
        let root = metadata.store_root.clone().or_else(|| sources.store_root.clone());
        let store = Store::new(dir, root)
            .map_err(|error| ArtifactError::Closure { path: file.clone(), error })?;
        Ok(Self { path, store, metadata, limits })
    }

    /// The environment's name.
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> PathBuf {
        self.path.join("metadata.json")
    }

    /// Looks at the closure and makes the environment.
    ///
    /// # Errors
    /// A closure that is unknown, broken or no longer there; an interpreter that it lacks.
    pub(super) fn resolve(&self, sources: &Sources) -> Result<Environment, ArtifactError> {
        let closure = self.closure(sources)?;
        let broken = |error| ArtifactError::Closure { path: self.file(), error };
        let mut mounts = self.store.mounts(&closure).map_err(broken)?;
        let view =
            View { store: &self.store, closure: closure.iter().map(AsRef::as_ref).collect() };
        let env = self.env();
        let wrong = |problem| ArtifactError::Metadata { path: self.file(), problem };
        if !view.closure.contains(env.as_path()) {
            return Err(wrong(format!("`env` {} is not in the closure", env.display())));
        }
        let kind = self.metadata.interpreter_type;
        let bin = env.join("bin");
        let program = bin.join(kind.program());
        if !view.has_program(&program) {
            return Err(wrong(format!("there is no program {}", program.display())));
        }
        for (at, names) in [("/bin/sh", &["sh", "bash"][..]), ("/usr/bin/env", &["env"])] {
            if let Some(target) = view.find(&env, names) {
                mounts.push(Mount { at: PathBuf::from(at), kind: MountKind::Symlink { target } });
            }
        }
        Ok(Environment {
            passed_over: Vec::new(),
            name: self.metadata.name.clone(),
            interpreter: kind,
            origin: Origin::Artifact { path: self.path.clone() },
            program,
            mounts,
            path: vec![bin],
            receipt: Some(receipt(env, &view.closure)),
            jails: self.jails(sources),
            variables: self.variables(&view),
            limits: self.limits,
            description: self.metadata.description.clone().unwrap_or_else(|| {
                format!("{} environment built by Nix", self.metadata.interpreter_type)
            }),
        })
    }

    /// The store path with `bin/`.
    fn env(&self) -> PathBuf {
        let own = || match self.store.as_seen(&self.path) {
            Some(path) => path,
            None => self.path.clone(),
        };
        self.metadata.env.clone().unwrap_or_else(own)
    }

    fn closure(&self, sources: &Sources) -> Result<Vec<PathBuf>, ArtifactError> {
        if let Some(closure) = &self.metadata.closure {
            return Ok(closure.clone());
        }
        let path = self.store.as_seen(&self.path).unwrap_or_else(|| self.path.clone());
        self.store
            .requisites(&[path], sources)
            .map_err(|error| ArtifactError::NoClosure { path: self.file(), error })
    }

    /// `None` where they do not take the server's word, or where they would show another store: their
    /// paths are those that the sandbox sees.
    fn jails(&self, sources: &Sources) -> Option<Jails> {
        if self.metadata.jail != Some(JAIL) || self.store.is_elsewhere() {
            return None;
        }
        let run = self.jail("run", sources)?;
        let session = self.jail("session-run", sources)?;
        Some(Jails { run, session })
    }

    fn jail(&self, name: &str, sources: &Sources) -> Option<Jail> {
        let path = fs::canonicalize(self.path.join("bin").join(name)).ok()?;
        source::check_trusted(&path, sources.euid).ok()?;
        let program = source::check(&path).ok().filter(|program| !program.directory)?;
        let store = self.store.holder(&path)?.parent()?.to_owned();
        Some(Jail { program, store })
    }

    fn variables(&self, view: &View<'_>) -> BTreeMap<OsString, OsString> {
        let locales = view.closure.iter().find_map(|path| {
            let name = path.file_name()?.to_str()?;
            name.contains("-glibc-locales").then(|| path.join("lib/locale/locale-archive"))
        });
        let locales = locales.map(|path| (OsString::from("LOCALE_ARCHIVE"), path.into_os_string()));
        let own = self.metadata.variables.iter().map(|(name, value)| (name.into(), value.into()));
        locales.into_iter().chain(own).collect()
    }
}

/// The name and the limits that a `metadata.json` gives, for the fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn judge(text: &[u8]) -> Result<(String, LimitOverrides), String> {
    let metadata = Metadata::parse(text)?;
    let limits = metadata.check()?;
    Ok((metadata.name, limits))
}

impl Metadata {
    fn parse(text: &[u8]) -> Result<Self, String> {
        // First as any JSON: that bounds the depth of unknown fields too, and a list of values in
        // the order of our fields, which serde would take for a struct, is told from an object.
        let any: serde_json::Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if !any.is_object() {
            return Err("it is no JSON object".to_owned());
        }
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// Checks what can be checked without the store, and returns the limits.
    fn check(&self) -> Result<LimitOverrides, String> {
        if self.version.is_some_and(|version| version != VERSION) {
            let version = self.version.unwrap_or_default();
            return Err(format!("version {version} is not known; this program reads {VERSION}"));
        }
        if !is_name(&self.name) {
            return Err(format!(
                "{:?} is no name; it has 1 to 64 letters, digits, `_`, `.` or `-`",
                shorten(&self.name)
            ));
        }
        for (name, value) in &self.variables {
            if !is_variable(name) || value.contains('\0') {
                return Err(format!("{:?} cannot be an environment variable", shorten(name)));
            }
        }
        let mut limits = self.limits;
        limits.time = limits.time.or(self.timeout_seconds);
        limits.memory = limits.memory.or(self.memory_mb.map(|mib| mib.saturating_mul(1 << 20)));
        let checked = limits.apply(&mut Limits::default());
        checked.map(|()| limits).map_err(|error: LimitError| error.to_string())
    }
}

/// Whether an environment can be called so: `[A-Za-z0-9_.-]{1,64}`, and neither `.` nor `..`.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && name != "." && name != ".."
}

/// Whether an environment variable can be called so in every shell.
pub(crate) fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Where the entry leads. `nix build -o` in a chroot store makes a link to `/nix/store/…`, which is
/// below the chroot store on this host.
fn locate(entry: &Path, sources: &Sources) -> Result<PathBuf, ArtifactError> {
    let target = fs::read_link(entry).ok().filter(|target| target.starts_with(STORE_DIR));
    let inside = target.zip(sources.store_root.as_ref());
    let inside = inside.map(|(target, root)| links::below(root)(&target));
    let path = inside.unwrap_or_else(|| entry.to_owned());
    fs::canonicalize(&path).map_err(|error| {
        let errno = nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        SourceError::Io { path, errno }.into()
    })
}

fn receipt(store_path: PathBuf, closure: &BTreeSet<&Path>) -> Receipt {
    let mut hash = Sha256::new();
    for path in closure {
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update(b"\n");
    }
    let closure_sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Receipt { store_path, closure_sha256, closure_paths: closure.len(), flake: None }
}

/// A closure as the sandbox sees it.
struct View<'a> {
    store: &'a Store,
    closure: BTreeSet<&'a Path>,
}

impl View<'_> {
    /// Whether `path` leads to a program without leaving the closure.
    fn has_program(&self, path: &Path) -> bool {
        let Ok(walk) = links::walk(path, &|path| self.store.on_host(path)) else { return false };
        let ends = self.store.holder(&walk.real);
        let ways = walk.links.iter().map(|(at, _)| self.store.holder(at));
        let inside = ways
            .chain([ends])
            .all(|holder| holder.is_some_and(|holder| self.closure.contains(holder.as_path())));
        let about = fs::metadata(self.store.on_host(&walk.real));
        inside
            && about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    }

    /// The first program of one of these names: in `env`, else anywhere in the closure.
    fn find(&self, env: &Path, names: &[&str]) -> Option<PathBuf> {
        let places = std::iter::once(env).chain(self.closure.iter().copied());
        let mut programs =
            places.flat_map(|place| names.iter().map(move |name| place.join("bin").join(name)));
        programs.find(|program| self.has_program(program))
    }
}

#[cfg(test)]
mod tests;
