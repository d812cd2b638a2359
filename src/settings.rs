//! Settings: flags, then environment variables, then the settings file, then defaults.
//!
//! A flag is the same setting as its environment variable: the command line answers the look-up of
//! the variable first. Whatever is wrong is refused at start with its name and value, also an empty
//! value; nothing falls back to its default in silence.

mod metadata;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tracing::level_filters::LevelFilter;

use self::metadata::Metadata;
use crate::audit;
use crate::environment::artifact::is_variable;
use crate::environment::flake::Flake;
use crate::environment::{Sources, place, source};
use crate::log::Log;
use crate::plan::{HostFile, Identity, Ids, LimitOverrides, Limits, ProcMode, Wall};
use crate::planner::{self, Ground};
use crate::policy::Profile;
use crate::session::Rules;

/// One setting, as README's table and `--help` show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The environment variable, or the key in the settings file.
    pub name: &'static str,
    /// Where it is given.
    pub place: Place,
    /// What it means.
    pub meaning: &'static str,
    /// What holds without it.
    pub default: &'static str,
}

/// Where a setting is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the environment.
    Variable,
    /// In the file that `NIX_SANDBOX_CONFIG` names.
    File,
}

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Setting {
    Setting { name, place: Place::Variable, meaning, default }
}

const fn in_file(name: &'static str, default: &'static str, meaning: &'static str) -> Setting {
    Setting { name, place: Place::File, meaning, default }
}

/// Every setting: the one table of which README and `--help` are made.
pub const SETTINGS: [Setting; 28] = [
    variable(PROJECT_DIR, "none", "directory that sandboxes see, read-only; absolute"),
    variable(PROJECT_MOUNT, "/project", "where they see it"),
    variable(DIR, "~/.config/nix-sandbox-mcp/sandboxes", "directory of artifacts built by Nix"),
    variable(
        ENVS,
        "none",
        "flake references, with commas between: environments that Nix builds when the server starts",
    ),
    variable(
        METADATA,
        "none",
        "what the Nix build tells the server: a JSON object, or `@` and the absolute path of its file",
    ),
    variable(
        STORE_ROOT,
        "none",
        "where a chroot store lies: DIR has /nix/store at DIR/nix/store; absolute",
    ),
    variable(
        BACKEND,
        "engine",
        "what isolates: engine, jail (bubblewrap), or auto: the engine, and bubblewrap where it \
         cannot run",
    ),
    variable(CONFIG, "none", "settings file (TOML) with the keys below; absolute"),
    variable(
        LOG,
        "warn",
        "what is logged to stderr: off, error, warn, info, debug or trace; with `,json` as JSON",
    ),
    variable(
        AUDIT,
        "none",
        "file that gets a JSON line for each run and each refusal, without code and output; with \
         `,code` and `,output` at its end, with them, but for output that passes through `exec`; absolute",
    ),
    variable(
        STRUCTURED,
        "0",
        "1: results also as structuredContent; many clients then show models nothing else",
    ),
    variable(MAX_RUNS, "8", "runs at the same time, 1 to 1024; further ones wait"),
    variable(
        POOL,
        "8",
        "sandboxes that stand ready for runs to come, those of Python and Node with an interpreter that has started, those of sessions with their agent, 0 to 1024; made as they are used",
    ),
    variable(MAX_SESSIONS, "16", "sessions at the same time, 1 to 1024"),
    variable(SESSION_IDLE, "1800", "seconds after which an unused session ends"),
    variable(SESSION_LIFETIME, "28800", "seconds after which a session ends, used or not"),
    in_file("limits.memory", "512M", "memory of a sandbox"),
    in_file("limits.swap", "0", "swap of a sandbox"),
    in_file("limits.pids", "512", "processes and threads"),
    in_file("limits.cpu", "2", "processors; fractions are allowed"),
    in_file("limits.workspace", "256M", "size of /workspace, and again of /tmp"),
    in_file("limits.files", "65536", "files in each of them"),
    in_file("limits.output", "64M", "what a run may print before it is ended"),
    in_file("limits.time", "30", "seconds a run may take; fractions are allowed"),
    in_file(
        "require",
        "[]",
        "walls without which nothing runs, besides those that always are: landlock, cgroup, keyring",
    ),
    in_file("profile", "default", "system calls that are allowed: default, strict or compat"),
    in_file(
        "proc",
        "fresh",
        "what is at /proc: fresh, or none where the kernel refuses it (containers)",
    ),
    in_file("inherit_env", "[]", "names of environment variables that sandboxed programs see too"),
];

const PROJECT_DIR: &str = "PROJECT_DIR";
const PROJECT_MOUNT: &str = "PROJECT_MOUNT";
const DIR: &str = "NIX_SANDBOX_DIR";
const ENVS: &str = "NIX_SANDBOX_ENVS";
const METADATA: &str = "NIX_SANDBOX_METADATA";
const STORE_ROOT: &str = "NIX_SANDBOX_STORE_ROOT";
const BACKEND: &str = "NIX_SANDBOX_BACKEND";
const CONFIG: &str = "NIX_SANDBOX_CONFIG";
const LOG: &str = "NIX_SANDBOX_LOG";
const AUDIT: &str = "NIX_SANDBOX_AUDIT";
const STRUCTURED: &str = "NIX_SANDBOX_STRUCTURED";
const MAX_RUNS: &str = "NIX_SANDBOX_MAX_RUNS";
const POOL: &str = "NIX_SANDBOX_POOL";
const MAX_SESSIONS: &str = "NIX_SANDBOX_MAX_SESSIONS";
const SESSION_IDLE: &str = "SESSION_IDLE_TIMEOUT";
const SESSION_LIFETIME: &str = "SESSION_MAX_LIFETIME";

/// Where artifacts are looked for, below the home directory.
const DEFAULT_DIR: &str = ".config/nix-sandbox-mcp/sandboxes";
/// The largest settings file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// [`SETTINGS`] as a Markdown table.
#[must_use]
pub fn markdown() -> String {
    let mut table = String::from("| setting | where | default | meaning |\n|---|---|---|---|\n");
    for Setting { name, place, meaning, default } in SETTINGS {
        let place = match place {
            Place::Variable => "environment",
            Place::File => "settings file",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{name}` | {place} | `{default}` | {meaning} |");
    }
    table
}

/// [`SETTINGS`] as the last part of `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    let headings = [
        (Place::Variable, "Environment variables:"),
        (Place::File, "Keys of the settings file that NIX_SANDBOX_CONFIG names:"),
    ];
    for (here, heading) in headings {
        let _ = writeln!(text, "{heading}");
        for Setting { name, meaning, default, .. } in SETTINGS.iter().filter(|s| s.place == here) {
            let _ = writeln!(text, "  {name:<22}  {meaning} [{default}]");
        }
    }
    text
}

/// A setting that cannot be: its name, its value, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={} {problem}", show(value))]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// What it holds.
    pub value: OsString,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// A value as people would write it: quoted if it is odd, cut if it is long.
fn show(value: &OsStr) -> String {
    const LONGEST: usize = 120;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@".contains(byte);
    let bytes = value.as_bytes();
    let head = OsStr::from_bytes(&bytes[..bytes.len().min(LONGEST)]);
    let shown = match head.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(|byte| plain(&byte)) => text.to_owned(),
        _ => format!("{head:?}"),
    };
    if bytes.len() > LONGEST { format!("{shown}… ({} bytes)", bytes.len()) } else { shown }
}

/// A project, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The directory, without links in its path.
    pub source: HostFile,
    /// Where sandboxes see it.
    pub mount: PathBuf,
    /// Whom it belongs to.
    pub owner: Ids,
}

/// What isolates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// The engine of this program.
    #[default]
    Engine,
    /// bubblewrap.
    Jail,
    /// The engine; bubblewrap only where that cannot run.
    Auto,
}

/// All settings, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The project, if there is one.
    pub project: Option<Project>,
    /// Where sandboxes see a project, also one that a request names.
    pub project_mount: PathBuf,
    /// Where environments are looked for.
    pub sources: Sources,
    /// What isolates.
    pub backend: Backend,
    /// Limits over those of environments.
    pub limits: LimitOverrides,
    /// Walls without which nothing runs, besides those that always are.
    pub require: BTreeSet<Wall>,
    /// How much the system-call filter allows.
    pub profile: Profile,
    /// What stands at `/proc`.
    pub proc: ProcMode,
    /// Variables of this process that payloads see too.
    pub inherited: BTreeMap<OsString, OsString>,
    /// What is logged.
    pub log: Log,
    /// What is kept of each run.
    pub audit: Option<audit::Rules>,
    /// Whether results are structured too.
    pub structured: bool,
    /// Runs at the same time.
    pub max_runs: usize,
    /// Sandboxes that stand ready.
    pub pool: usize,
    /// How many sessions there may be, and for how long.
    pub sessions: Rules,
}

/// The settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    limits: LimitOverrides,
    require: BTreeSet<Wall>,
    profile: Profile,
    proc: ProcMode,
    inherit_env: Vec<String>,
}

/// Looks a variable up; the command line lets its flags answer first.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    /// Reads and checks all settings. `euid` is who runs this program.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn load(lookup: Lookup<'_>, euid: u32) -> Result<Self, SettingsError> {
        // An empty HOME or PATH is none: they are not ours to judge.
        let foreign = |name| lookup(name).filter(|value| !value.is_empty());
        let home = foreign("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.map(|home| fs::canonicalize(&home).unwrap_or(home));
        let file = read_file(lookup, euid)?;
        let metadata = metadata(lookup, euid)?;
        let lookup = &|name: &str| lookup(name).or_else(|| metadata.variable(name));
        let project_mount = project_mount(lookup)?;
        let project = lookup(PROJECT_DIR)
            .map(|dir| Project::check(Path::new(&dir), &project_mount, home.as_deref()))
            .transpose()?;
        let named = metadata.named().map_err(|problem| in_metadata(lookup, problem))?;
        let sources = Sources {
            path: foreign("PATH"),
            project: project.as_ref().map(|project| project.source.path.clone()),
            artifacts: artifacts(lookup, home.as_deref())?,
            named,
            flakes: flakes(lookup)?,
            roots: roots(foreign("XDG_STATE_HOME"), home.as_deref()),
            store_root: directory(lookup, STORE_ROOT)?,
            home,
            euid,
        };
        let vars = metadata.inherited().map_err(|problem| in_metadata(lookup, problem))?;
        let inherit = file.inherit_env.into_iter().chain(vars);
        let inherited = inherit.filter_map(|name| Some((name.clone().into(), lookup(&name)?)));
        Ok(Self {
            project,
            project_mount,
            sources,
            backend: backend(lookup)?,
            limits: file.limits,
            require: file.require,
            profile: file.profile,
            proc: file.proc,
            inherited: inherited.collect(),
            log: log(lookup)?,
            audit: audit(lookup)?,
            structured: structured(lookup)?,
            max_runs: count(lookup, MAX_RUNS, 1, 8)?,
            pool: count(lookup, POOL, 0, 8)?,
            sessions: sessions(lookup)?,
        })
    }
}

impl Settings {
    /// What the planner needs of them.
    #[must_use]
    pub fn ground(&self) -> Ground {
        Ground {
            project: self.project.as_ref().map(|it| (it.source.clone(), it.mount.clone())),
            limits: self.limits,
            require: self.require.clone(),
            profile: self.profile,
            proc: self.proc,
            variables: self.inherited.clone(),
            outputs: false,
        }
    }

    /// Who sandboxes are for the host. Whoever starts this program; but if that is root, the
    /// project's owner, and if that is root too, a fixed user that owns nothing.
    #[must_use]
    pub fn outside(&self, own: Ids) -> Ids {
        if own.uid != 0 {
            return own;
        }
        let fallback = Identity::FALLBACK_OUTSIDE;
        let owner = self.project.as_ref().map_or(fallback, |project| project.owner);
        Ids {
            uid: if owner.uid == 0 { fallback.uid } else { owner.uid },
            gid: if owner.gid == 0 { fallback.gid } else { owner.gid },
        }
    }
}

fn wrong(name: &'static str, value: &OsStr, problem: impl Into<String>) -> SettingsError {
    SettingsError { name, value: value.to_owned(), problem: problem.into() }
}

/// The value of a variable that must be text.
fn text(lookup: Lookup<'_>, name: &'static str) -> Result<Option<String>, SettingsError> {
    let text = |value: OsString| value.into_string().map_err(|v| wrong(name, &v, "is no text"));
    lookup(name).map(text).transpose()
}

/// The value of a variable that must name a directory that is there.
fn directory(lookup: Lookup<'_>, name: &'static str) -> Result<Option<PathBuf>, SettingsError> {
    let Some(value) = lookup(name) else { return Ok(None) };
    let path = Path::new(&value);
    if !path.is_absolute() {
        return Err(wrong(name, &value, "must be an absolute path"));
    }
    match fs::canonicalize(path).and_then(|path| Ok((fs::metadata(&path)?.is_dir(), path))) {
        Ok((true, path)) => Ok(Some(path)),
        Ok((false, _)) => Err(wrong(name, &value, "is not a directory")),
        Err(error) => Err(wrong(name, &value, unreachable(&error))),
    }
}

fn unreachable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be reached: permission denied".to_owned(),
        _ => format!("cannot be reached: {error}"),
    }
}

fn artifacts(lookup: Lookup<'_>, home: Option<&Path>) -> Result<Option<PathBuf>, SettingsError> {
    let given = directory(lookup, DIR)?;
    Ok(given.or_else(|| home.map(|home| home.join(DEFAULT_DIR))))
}

fn metadata(lookup: Lookup<'_>, euid: u32) -> Result<Metadata, SettingsError> {
    let Some(value) = lookup(METADATA) else { return Ok(Metadata::default()) };
    Metadata::read(&value, euid).map_err(|problem| wrong(METADATA, &value, problem))
}

fn in_metadata(lookup: Lookup<'_>, problem: String) -> SettingsError {
    wrong(METADATA, &lookup(METADATA).unwrap_or_default(), problem)
}

fn flakes(lookup: Lookup<'_>) -> Result<Vec<Flake>, SettingsError> {
    let Some(value) = text(lookup, ENVS)? else { return Ok(Vec::new()) };
    let refused = |problem: String| wrong(ENVS, value.as_ref(), problem);
    let flakes: Vec<Flake> =
        value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(refused)?;
    for (at, flake) in flakes.iter().enumerate() {
        if let Some(first) = flakes[..at].iter().find(|first| first.name() == flake.name()) {
            let name = flake.name();
            return Err(refused(format!(
                "has two environments called {name:?}: {first} and {flake}"
            )));
        }
    }
    Ok(flakes)
}

/// Where the garbage-collector roots of environments are that Nix builds at the start.
fn roots(state: Option<OsString>, home: Option<&Path>) -> Option<PathBuf> {
    let given = state.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| home.map(|home| home.join(".local/state")));
    state.map(|state| state.join("nix-sandbox-mcp/roots"))
}

fn backend(lookup: Lookup<'_>) -> Result<Backend, SettingsError> {
    let Some(value) = text(lookup, BACKEND)? else { return Ok(Backend::default()) };
    match value.as_str() {
        "engine" => Ok(Backend::Engine),
        "jail" => Ok(Backend::Jail),
        "auto" => Ok(Backend::Auto),
        _ => Err(wrong(BACKEND, value.as_ref(), "is no backend; use engine, jail or auto")),
    }
}

fn log(lookup: Lookup<'_>) -> Result<Log, SettingsError> {
    let Some(value) = text(lookup, LOG)? else {
        return Ok(Log { level: LevelFilter::WARN, json: false });
    };
    let (level, json) = match value.strip_suffix(",json") {
        Some(level) => (level, true),
        None => (value.as_str(), false),
    };
    let level = match level {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => {
            let right =
                "must be off, error, warn, info, debug or trace, or one of them with `,json`";
            return Err(wrong(LOG, value.as_ref(), right));
        }
    };
    Ok(Log { level, json })
}

fn audit(lookup: Lookup<'_>) -> Result<Option<audit::Rules>, SettingsError> {
    let Some(value) = lookup(AUDIT) else { return Ok(None) };
    let mut rest = value.as_bytes();
    let (mut code, mut output) = (false, false);
    loop {
        if let Some(before) = rest.strip_suffix(b",code") {
            (rest, code) = (before, true);
        } else if let Some(before) = rest.strip_suffix(b",output") {
            (rest, output) = (before, true);
        } else {
            break;
        }
    }
    let file = PathBuf::from(OsStr::from_bytes(rest));
    if !file.is_absolute() {
        return Err(wrong(AUDIT, &value, "must be an absolute path"));
    }
    Ok(Some(audit::Rules { file, code, output }))
}

fn structured(lookup: Lookup<'_>) -> Result<bool, SettingsError> {
    let Some(value) = text(lookup, STRUCTURED)? else { return Ok(false) };
    match value.as_str() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(wrong(STRUCTURED, value.as_ref(), "must be 0 or 1")),
    }
}

fn count(
    lookup: Lookup<'_>,
    name: &'static str,
    least: usize,
    default: usize,
) -> Result<usize, SettingsError> {
    let Some(value) = text(lookup, name)? else { return Ok(default) };
    let count = value.parse().ok().filter(|count| (least..=1024).contains(count));
    let advice = format!("must be a whole number from {least} to 1024");
    count.ok_or_else(|| wrong(name, value.as_ref(), advice))
}

fn sessions(lookup: Lookup<'_>) -> Result<Rules, SettingsError> {
    let default = Rules::default();
    Ok(Rules {
        most: count(lookup, MAX_SESSIONS, 1, default.most)?,
        idle: seconds(lookup, SESSION_IDLE, default.idle)?,
        lifetime: seconds(lookup, SESSION_LIFETIME, default.lifetime)?,
    })
}

fn seconds(
    lookup: Lookup<'_>,
    name: &'static str,
    default: Duration,
) -> Result<Duration, SettingsError> {
    const LONGEST: f64 = 30.0 * 24.0 * 3600.0;
    let Some(value) = text(lookup, name)? else { return Ok(default) };
    let seconds = value.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        wrong(name, value.as_ref(), "must be a number of seconds above 0 and at most 2592000")
    })
}

fn read_file(lookup: Lookup<'_>, euid: u32) -> Result<File, SettingsError> {
    let Some(value) = lookup(CONFIG) else { return Ok(File::default()) };
    let refused = |problem: String| wrong(CONFIG, &value, problem);
    let path = Path::new(&value);
    if !path.is_absolute() {
        return Err(refused("must be an absolute path".to_owned()));
    }
    // It can name walls and secrets: nobody else may have written it.
    let bytes = source::read_small(path, true, MAX_FILE, euid)
        .map_err(|error| refused(format!("cannot be used: {error}")))?;
    parse_file(&bytes).map_err(refused)
}

/// What a settings file says, or what is wrong with it.
fn parse_file(bytes: &[u8]) -> Result<File, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is no UTF-8 text".to_owned())?;
    let file: File = toml::from_str(text).map_err(|error| in_line(text, &error))?;
    let refused = |problem: String| format!("cannot be used: {problem}");
    file.limits.apply(&mut Limits::default()).map_err(|error| refused(error.to_string()))?;
    file.inherit_env.iter().try_for_each(|name| inheritable(name)).map_err(refused)?;
    Ok(file)
}

/// The limits and the variables that a settings file gives, for the fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn judge(bytes: &[u8]) -> Result<(LimitOverrides, Vec<String>), String> {
    parse_file(bytes).map(|file| (file.limits, file.inherit_env))
}

fn inheritable(name: &str) -> Result<(), String> {
    if !is_variable(name) {
        return Err(format!("`inherit_env`: {name:?} is no name of a variable"));
    }
    if planner::OWN_VARIABLES.contains(&name) {
        return Err(format!("`inherit_env`: {name} is set by the sandbox itself"));
    }
    Ok(())
}

/// What is wrong with a TOML text: the line's number, the line, the reason.
fn in_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let Some(span) = error.span() else { return format!("cannot be used: {message}") };
    let before = text.get(..span.start).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    format!("cannot be used: line {number}, `{line}`: {message}")
}

fn project_mount(lookup: Lookup<'_>) -> Result<PathBuf, SettingsError> {
    let Some(value) = lookup(PROJECT_MOUNT) else { return Ok(PathBuf::from("/project")) };
    let path = Path::new(&value);
    let problem = if !place::is_plain(path) {
        "must be an absolute path without `.`, `..`, `//`, a `/` at its end or a NUL byte, shorter \
         than 4096 bytes"
            .to_owned()
    } else if path == Path::new("/") {
        "cannot be the root; use a directory such as /project".to_owned()
    } else if let Some(taken) = place::taken_at(path) {
        format!("cannot be used: the sandbox has its own {taken}; use, say, /project")
    } else if place::is_or_holds_home(path, None) {
        "cannot be used: interpreters can lie below it; use, say, /project".to_owned()
    } else {
        return Ok(path.to_owned());
    };
    Err(wrong(PROJECT_MOUNT, &value, problem))
}

/// Kernel interfaces, sockets and Nix's own state: neither they nor what is below them is shown.
const NEVER_BELOW: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/nix/var"];
/// Too much of a host; a directory below may be shown.
const NEVER_WHOLE: [&str; 5] = ["/", "/nix", "/nix/store", "/etc", "/var"];

impl Project {
    /// Checks the directory `dir`, which sandboxes shall see at `mount`. `home` is the caller's
    /// home directory without links in its path. `dir` must be absolute: a command line joins it
    /// to its working directory first.
    ///
    /// # Errors
    /// One that names `PROJECT_DIR`.
    pub fn check(dir: &Path, mount: &Path, home: Option<&Path>) -> Result<Self, SettingsError> {
        let refused = |problem: String| wrong(PROJECT_DIR, dir.as_os_str(), problem);
        if dir.as_os_str().is_empty() {
            return Err(refused("is empty; unset it, or name a directory".to_owned()));
        }
        if !dir.is_absolute() {
            return Err(refused("must be an absolute path".to_owned()));
        }
        let real = fs::canonicalize(dir).map_err(|error| refused(unreachable(&error)))?;
        if let Some(problem) = exposure(&real, home) {
            return Err(refused(problem));
        }
        let (source, owner) = source::check_owned(&real).map_err(|error| match error {
            source::SourceError::Kind { kind, .. } => refused(not_a_directory(kind)),
            error => refused(format!("cannot be used: {error}")),
        })?;
        if !source.directory {
            return Err(refused(not_a_directory("regular file")));
        }
        fs::read_dir(&real).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => refused("cannot be read: permission denied".into()),
            _ => refused(format!("cannot be read: {error}")),
        })?;
        Ok(Self { source, mount: mount.to_owned(), owner })
    }
}

fn not_a_directory(kind: &str) -> String {
    format!("is a {kind}, not a directory")
}

/// Why a directory of the host is too much for a sandbox.
fn exposure(real: &Path, home: Option<&Path>) -> Option<String> {
    let below = NEVER_BELOW.into_iter().find(|place| real.starts_with(place));
    let whole = NEVER_WHOLE.into_iter().find(|place| real == Path::new(place));
    if let Some(place) = below.or(whole) {
        let leads = if real == Path::new(place) { "is" } else { "lies below" };
        return Some(format!("{leads} {place}, which no sandbox may see; name a project"));
    }
    place::is_or_holds_home(real, home).then(|| {
        "is or holds a home directory: a sandbox would see every secret in it; name a project"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
