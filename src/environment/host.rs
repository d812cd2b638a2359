//! Host environments: a preset made of the programs of this machine, where no Nix is installed.
//!
//! Shown are the trees in which a distribution keeps programs, read-only, and the interpreter's own
//! prefix when it lies elsewhere. Of `/home` and `/root` nothing else; of `/etc` what programs need to
//! start at all ([`ETC`], Java's settings).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ask::{AskError, Question};
use super::preset::Preset;
use super::source::{self, SourceError};
use super::store::{Store, StoreError};
use super::{Environment, Interpreter, Origin, Sources, links, place};
use crate::plan::{Mount, MountKind};

/// How long a shim or `ldd` may take.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Where programs are looked up in the sandbox, as far as they are there.
const USUAL_PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// What programs of `/usr` need of `/etc` to start at all. Debian's and Fedora's `awk`, `which`,
/// `nc` … are links through the first; the second is how the dynamic loader finds libraries
/// outside of its built-in directories. Both name files and hold no secret.
const ETC: [&str; 2] = ["/etc/alternatives", "/etc/ld.so.cache"];

/// Why this host has no such environment.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No such program.
    #[error("there is no `{program}` in {looked}; install it, or build the environment with Nix")]
    NotFound {
        /// The program.
        program: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A shim that leads nowhere.
    #[error("{} does not say which program it stands for: {why}", shim.display())]
    Shim {
        /// The shim.
        shim: PathBuf,
        /// What happened.
        why: String,
    },
    /// A program that the project supplies.
    #[error("{} lies in the project, which must not supply the interpreter", .0.display())]
    InProject(PathBuf),
    /// A program that lies where the sandbox has something else.
    #[error("{} lies at {place}, which a sandbox makes itself", path.display())]
    Made {
        /// What would have to be shown.
        path: PathBuf,
        /// What is there.
        place: &'static str,
    },
    /// A virtual environment that is no directory of its own.
    #[error("the virtual environment {} is a whole home directory", .0.display())]
    Home(PathBuf),
    /// A program of the Nix store whose closure is unknown.
    #[error("{} lies in the Nix store, and its closure is unknown: {error}", program.display())]
    Store {
        /// The program.
        program: PathBuf,
        /// Why.
        error: StoreError,
    },
    /// A file that cannot be shown.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file that cannot be reached.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: std::io::Error,
    },
    /// `ldd` failed.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Makes `preset` of what this host has: the first program in `PATH` that works. Those before it are
/// told of: somebody may have meant one of them, such as a virtual environment that is active.
///
/// # Errors
/// If there is none: why the first that was there did not do.
pub(super) fn resolve(preset: &Preset, sources: &Sources) -> Result<Environment, HostError> {
    let mut passed_over: Vec<HostError> = Vec::new();
    for candidate in sources.all_candidates(&preset.host.interpreter) {
        match attempt(&candidate, preset, sources) {
            Ok(environment) => {
                let passed_over = passed_over.iter().map(ToString::to_string).collect();
                return Ok(Environment { passed_over, ..environment });
            }
            Err(error) => passed_over.push(error),
        }
    }
    Err(passed_over.into_iter().next().unwrap_or_else(|| {
        let looked: BTreeSet<_> = sources.search().map(|dir| dir.display().to_string()).collect();
        let looked = looked.into_iter().collect::<Vec<_>>().join(":");
        HostError::NotFound { program: preset.host.interpreter.clone(), looked }
    }))
}

fn attempt(candidate: &Path, preset: &Preset, sources: &Sources) -> Result<Environment, HostError> {
    if sources.in_project(candidate) {
        return Err(HostError::InProject(candidate.to_owned()));
    }
    let found = Found::at(candidate, preset.interpreter_type, sources)?;
    let mut tree = Tree::system(Path::new("/"));
    let mut path = Vec::new();
    tree.add_store_programs(&found, preset, sources, &mut path)?;
    tree.add_interpreter(&found, preset.interpreter_type, sources)?;
    for mount in &tree.mounts {
        if let Some(place) = place::made_at(&mount.at) {
            return Err(HostError::Made { path: mount.at.clone(), place });
        }
    }
    let own = found.program.parent().filter(|dir| !tree.system_covers(dir));
    let usual = USUAL_PATH.into_iter().map(Path::new);
    let usual = usual.filter(|dir| tree.system_covers(dir) && dir.is_dir());
    let mut all: Vec<PathBuf> = own.into_iter().chain(usual).map(Path::to_owned).collect();
    path.retain(|dir| !all.contains(dir));
    all.append(&mut path);
    Ok(Environment {
        passed_over: Vec::new(),
        name: preset.name.clone(),
        interpreter: preset.interpreter_type,
        origin: Origin::Host,
        receipt: None,
        jails: None,
        program: found.program,
        mounts: tree.mounts,
        path: all,
        variables: Default::default(),
        limits: preset.limits,
        description: preset.host.description.clone(),
    })
}

/// An interpreter on this host.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// What is executed: for a virtual environment its own link, else `real`.
    program: PathBuf,
    /// The program file, without any link in its path.
    real: PathBuf,
    /// The virtual environment (`pyvenv.cfg`) that it belongs to.
    venv: Option<PathBuf>,
}

impl Found {
    fn at(candidate: &Path, kind: Interpreter, sources: &Sources) -> Result<Self, HostError> {
        let first = Self::follow(candidate)?;
        first.check_outside_project(sources)?;
        // What lies in the Nix store may be a wrapper script; its closure has its shell too.
        if first.is(kind) || Store::of_host().holder(&first.real).is_some() {
            return Ok(first);
        }
        let answer = ask_shim(candidate, kind, sources)
            .map_err(|error| HostError::Shim { shim: candidate.to_owned(), why: error })?;
        let second = Self::follow(&answer)?;
        second.check_outside_project(sources)?;
        if is_elf(&second.real) || Store::of_host().holder(&second.real).is_some() {
            return Ok(second);
        }
        let why = format!("it names {}, which is no program", answer.display());
        Err(HostError::Shim { shim: candidate.to_owned(), why })
    }

    fn follow(path: &Path) -> Result<Self, HostError> {
        let canonical = |path: &Path| {
            fs::canonicalize(path).map_err(|error| HostError::Io { path: path.to_owned(), error })
        };
        let real = canonical(path)?;
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Self { program: real.clone(), real, venv: None });
        };
        // The directory is followed, the file is not: its name in the virtual environment is how
        // Python finds `pyvenv.cfg`.
        let dir = canonical(dir)?;
        let venv = dir.parent().filter(|above| above.join("pyvenv.cfg").is_file());
        let program = if venv.is_some() { dir.join(name) } else { real.clone() };
        Ok(Self { program, real, venv: venv.map(Path::to_owned) })
    }

    fn check_outside_project(&self, sources: &Sources) -> Result<(), HostError> {
        let Some(project) = &sources.project else { return Ok(()) };
        match [&self.program, &self.real].into_iter().find(|path| path.starts_with(project)) {
            Some(path) => Err(HostError::InProject(path.clone())),
            None => Ok(()),
        }
    }

    /// Whether it is the interpreter itself. A script is a shim (pyenv, asdf); so is a program of
    /// another name (volta and mise link all names to one program).
    fn is(&self, kind: Interpreter) -> bool {
        let stem = kind.program().trim_end_matches('3').as_bytes();
        let name = self.real.file_name().unwrap_or_default();
        name.as_bytes().starts_with(stem) && is_elf(&self.real)
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Asks a shim which program it stands for.
fn ask_shim(shim: &Path, kind: Interpreter, sources: &Sources) -> Result<PathBuf, String> {
    let arguments: &[&str] = match kind {
        Interpreter::Bash => &["--norc", "-c", "printf '%s\\n' \"$BASH\""],
        Interpreter::Python => &["-I", "-c", "import sys;print(sys.executable)"],
        Interpreter::Node => &["-p", "process.execPath"],
    };
    let arguments = arguments.iter().map(OsStr::new).collect();
    let variables = sources.variables().collect();
    let question = Question { program: shim, arguments, variables, limit: ASK_LIMIT };
    let answer = question.ask().map_err(|error| error.to_string())?;
    // Shims chat: what counts is the last line that is a path.
    let mut lines = answer.split(|byte| *byte == b'\n');
    let path = lines.rfind(|line| line.starts_with(b"/")).ok_or("it printed no path")?;
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    if path == shim { Err("it names itself".to_owned()) } else { Ok(path) }
}

/// Where distributions keep a Java runtime's settings, which are links in its own directory: without
/// its `java.security` nothing that checks a right starts. What is secret in it (`jmxremote.password`)
/// Java itself wants readable by its owner alone.
fn java(etc: &Path) -> impl Iterator<Item = PathBuf> {
    let names = fs::read_dir(etc).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let settings = names.filter(|name| {
        name == "java"
            || (name.as_bytes().starts_with(b"java-") && name.as_bytes().ends_with(b"-openjdk"))
    });
    settings.map(|name| Path::new("/etc").join(name))
}

/// What is shown, growing. Nothing stands below anything else.
#[derive(Debug, Default)]
struct Tree {
    mounts: Vec<Mount>,
    /// How many of them, from the start, are the distribution's own.
    system: usize,
}

impl Tree {
    /// `/usr` and the top-level directories beside it: links where `/usr` is merged, else
    /// directories. Empty where programs do not live there at all (NixOS, Guix). `root` is `/` but
    /// in tests.
    fn system(root: &Path) -> Self {
        let host = links::below(root);
        let mut tree = Self::default();
        let top = place::TOP.iter().map(|name| Path::new("/").join(name));
        for at in std::iter::once(PathBuf::from("/usr")).chain(top) {
            let kind = match fs::read_link(host(&at)) {
                Ok(target) => MountKind::Symlink { target },
                Err(_) => match source::check(&host(&at)) {
                    Ok(source) if source.directory => MountKind::Bind { source },
                    _ => continue,
                },
            };
            tree.mounts.push(Mount { at, kind });
        }
        tree.system = tree.mounts.len();
        let shell = links::walk(Path::new("/bin/sh"), &host);
        if !shell.is_ok_and(|walk| tree.shows(&walk.real)) {
            return Self::default();
        }
        for at in ETC.map(PathBuf::from).into_iter().chain(java(&host(Path::new("/etc")))) {
            if let Ok(source) = source::check(&host(&at)) {
                tree.mounts.push(Mount { at, kind: MountKind::Bind { source } });
            }
        }
        tree
    }

    /// Whether the host's file at `real`, which has no link in its path, is shown.
    fn shows(&self, real: &Path) -> bool {
        self.mounts.iter().any(|mount| {
            matches!(mount.kind, MountKind::Bind { .. }) && real.starts_with(&mount.at)
        })
    }

    /// Whether something stands at or above `at`.
    fn covers(&self, at: &Path) -> bool {
        self.mounts.iter().any(|mount| at.starts_with(&mount.at))
    }

    fn system_covers(&self, at: &Path) -> bool {
        self.mounts[..self.system].iter().any(|mount| at.starts_with(&mount.at))
    }

    /// Binds `source` at `at`, unless it is there already; takes the place of what lies below.
    fn bind(&mut self, at: &Path, source: &Path) -> Result<(), HostError> {
        if !self.covers(at) {
            let kind = MountKind::Bind { source: source::check(source)? };
            self.mounts.retain(|mount| !mount.at.starts_with(at));
            self.mounts.push(Mount { at: at.to_owned(), kind });
        }
        Ok(())
    }

    fn link(&mut self, at: &Path, target: &Path) {
        if !self.covers(at) {
            let kind = MountKind::Symlink { target: target.to_owned() };
            self.mounts.push(Mount { at: at.to_owned(), kind });
        }
    }

    /// Shows the closure of what lies in the Nix store: the interpreter, and where there is no
    /// `/usr` to speak of, all the preset's programs with `/bin/sh` and `/usr/bin/env`. Their
    /// directories are added to `path`.
    fn add_store_programs(
        &mut self,
        found: &Found,
        preset: &Preset,
        sources: &Sources,
        path: &mut Vec<PathBuf>,
    ) -> Result<(), HostError> {
        let store = Store::of_host();
        let mut needed: BTreeSet<PathBuf> = store.holder(&found.real).into_iter().collect();
        if self.system == 0 {
            for name in &preset.host.programs {
                let here = sources.candidates(name).find_map(|path| fs::canonicalize(path).ok());
                let Some((real, holder)) =
                    here.and_then(|real| store.holder(&real).map(|holder| (real, holder)))
                else {
                    continue;
                };
                needed.insert(holder);
                let dir = real.parent().map(Path::to_owned).unwrap_or_default();
                if !path.contains(&dir) {
                    path.push(dir);
                }
                match name.as_str() {
                    "sh" => self.link(Path::new("/bin/sh"), &real),
                    "env" => self.link(Path::new("/usr/bin/env"), &real),
                    _ => {}
                }
            }
        }
        if !needed.is_empty() {
            let needed: Vec<PathBuf> = needed.into_iter().collect();
            let closure = store.requisites(&needed, sources);
            let mounts = closure.and_then(|closure| store.mounts(&closure));
            let program = found.real.clone();
            self.mounts.extend(mounts.map_err(|error| HostError::Store { program, error })?);
        }
        Ok(())
    }

    /// Shows an interpreter that lies outside of what is shown: its prefix or, where that is
    /// somebody's home, only its own files; the libraries that it needs; its virtual environment.
    fn add_interpreter(
        &mut self,
        found: &Found,
        kind: Interpreter,
        sources: &Sources,
    ) -> Result<(), HostError> {
        let home = sources.home.as_deref();
        if !self.shows(&found.real) {
            match own_prefix(&found.real, home) {
                Some(prefix) => self.bind(prefix, prefix)?,
                None => {
                    for path in own_files(&found.real, kind) {
                        self.bind(&path, &path)?;
                    }
                }
            }
            for library in libraries(&found.real, sources)? {
                if let Ok(real) = fs::canonicalize(&library) {
                    self.bind(&library, &real)?;
                }
            }
        }
        let Some(venv) = &found.venv else { return Ok(()) };
        if !is_own(venv, home) {
            return Err(HostError::Home(venv.clone()));
        }
        self.bind(venv, venv)?;
        self.add_links(&found.program);
        if let Some(base) = venv_home(venv) {
            self.add_links(&base);
        }
        Ok(())
    }

    /// Recreates the links by which `path` is reached, as far as they are not shown already.
    fn add_links(&mut self, path: &Path) {
        let walk = links::walk(path, &Path::to_owned);
        for (at, target) in walk.map(|walk| walk.links).unwrap_or_default() {
            self.link(&at, &target);
        }
    }
}

/// The directory above `bin`, if it is the interpreter's own.
fn own_prefix<'a>(program: &'a Path, home: Option<&Path>) -> Option<&'a Path> {
    let bin = program.parent().filter(|dir| dir.file_name() == Some(OsStr::new("bin")))?;
    bin.parent().filter(|prefix| is_own(prefix, home))
}

/// Whether a directory holds one thing: no home, nothing that holds a home, no top-level directory
/// (`/opt` holds everybody's) and no `~/.local`, where desktop programs keep data and keyrings.
fn is_own(dir: &Path, home: Option<&Path>) -> bool {
    let shared = dir.file_name() == Some(OsStr::new(".local"));
    let top = dir.components().count() <= 2;
    !top && !shared && !place::is_or_holds_home(dir, home)
}

/// The interpreter's file and its libraries beside it: `lib/python3.X`, `lib/node_modules`.
fn own_files(program: &Path, kind: Interpreter) -> Vec<PathBuf> {
    let mut files = vec![program.to_owned()];
    let prefix = program.parent().and_then(Path::parent);
    for lib in ["lib", "lib64"].iter().filter_map(|lib| prefix.map(|prefix| prefix.join(lib))) {
        let wanted = |name: &OsStr| match kind {
            Interpreter::Bash => false,
            Interpreter::Python => name.as_bytes().starts_with(b"python3."),
            Interpreter::Node => name == "node_modules",
        };
        let entries = fs::read_dir(&lib).into_iter().flatten().flatten();
        let real = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let mut wanted: Vec<_> =
            entries.filter(|entry| wanted(&entry.file_name()) && real(entry)).collect();
        wanted.sort_by_key(fs::DirEntry::file_name);
        files.extend(wanted.iter().map(fs::DirEntry::path));
    }
    files
}

/// The shared libraries and the ELF interpreter of a program, as `ldd` names them; none if it is
/// statically linked or there is no `ldd`.
fn libraries(program: &Path, sources: &Sources) -> Result<Vec<PathBuf>, HostError> {
    let Some(ldd) = sources.candidates("ldd").next() else { return Ok(Vec::new()) };
    let variables = sources.variables().collect();
    let arguments = vec![program.as_os_str()];
    let question = Question { program: &ldd, arguments, variables, limit: ASK_LIMIT };
    match question.ask() {
        Ok(answer) => Ok(library_paths(&String::from_utf8_lossy(&answer))),
        // "not a dynamic executable"
        Err(AskError::Failed { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Reads lines such as `libz.so.1 => /lib/libz.so.1 (0x7f…)` and `/lib64/ld-linux.so.2 (0x7f…)`.
fn library_paths(answer: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let named = line.split_once("=> ").map_or(line, |(_, path)| path);
        let (path, _) = named.trim().rsplit_once(" (")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    answer.lines().filter_map(path).collect()
}

/// `home = …` of a `pyvenv.cfg`: where the virtual environment's Python looks for its library.
fn venv_home(venv: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(venv.join("pyvenv.cfg")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let (_, home) = lines.find(|(key, _)| key.trim() == "home")?;
    let home = PathBuf::from(home.trim());
    home.is_absolute().then_some(home)
}

#[cfg(test)]
mod tests;
