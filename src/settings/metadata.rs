//! `NIX_SANDBOX_METADATA`: what the Nix build tells the server, as one JSON object.
//!
//! It is the predecessor's object, read strictly. An environment names its `artifact`, or, as the
//! predecessor had it, the `exec` that lies in one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{PROJECT_DIR, PROJECT_MOUNT, SESSION_IDLE, SESSION_LIFETIME, inheritable};
use crate::environment::artifact::is_name;
use crate::environment::{Interpreter, Named, source};
use crate::plan::{LimitOverrides, Limits};

/// The largest object, bytes.
const MAX: u64 = 1 << 20;
/// The environment that is made of the project's devShell.
const PROJECT: &str = "project";

/// The whole object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    #[serde(default)]
    environments: BTreeMap<String, Environment>,
    #[serde(default)]
    project: Option<Project>,
    #[serde(default)]
    session: Option<Session>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Environment {
    artifact: Option<PathBuf>,
    /// The predecessor's wrapper: `ARTIFACT/bin/run`.
    exec: Option<PathBuf>,
    /// The predecessor's; they say nothing that the artifact does not.
    #[serde(rename = "session_exec")]
    _session_exec: Option<PathBuf>,
    backend: Option<String>,
    #[serde(rename = "interpreter_type")]
    _interpreter: Option<Interpreter>,
    timeout_seconds: Option<f64>,
    memory_mb: Option<u64>,
}

/// `project`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Project {
    path: Option<PathBuf>,
    mount_point: Option<PathBuf>,
    #[serde(default)]
    use_flake: bool,
    /// How the Nix build takes the devShell.
    #[serde(rename = "interpreter")]
    _interpreter: Option<String>,
    #[serde(default)]
    inherit_env: Inherit,
}

/// `project.inherit_env`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inherit {
    #[serde(default)]
    vars: Vec<String>,
}

/// `session`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    idle_timeout_seconds: Option<f64>,
    max_lifetime_seconds: Option<f64>,
}

impl Metadata {
    /// Reads the object itself, or with `@FILE` the file that holds it.
    ///
    /// # Errors
    /// What is wrong with it, to follow the variable's name and value.
    pub(super) fn read(value: &OsStr, euid: u32) -> Result<Self, String> {
        let refused = |problem: String| format!("cannot be used: {problem}");
        let bytes = match value.as_bytes().strip_prefix(b"@") {
            None => value.as_bytes().to_vec(),
            Some(path) => {
                let path = Path::new(OsStr::from_bytes(path));
                if !path.is_absolute() {
                    return Err("must be a JSON object, or `@` and an absolute path".to_owned());
                }
                source::read_small(path, true, MAX, euid)
                    .map_err(|error| refused(error.to_string()))?
            }
        };
        // First as any JSON: a list in the order of the fields is no object.
        let any: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        if !any.is_object() {
            return Err("must be a JSON object, or `@` and an absolute path".to_owned());
        }
        let metadata: Self =
            serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        let made = metadata.environments.contains_key(PROJECT);
        if metadata.project.as_ref().is_some_and(|project| project.use_flake) && !made {
            return Err(refused(format!(
                "`project.use_flake` needs `environments.{PROJECT}`, which the Nix build (`lib.fromToml`) makes of the project's devShell"
            )));
        }
        Ok(metadata)
    }

    /// What it says in the place of an environment variable that is not set.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let project = self.project.as_ref();
        let session = self.session.as_ref();
        let seconds = |value: Option<f64>| value.map(|value| value.to_string().into());
        match name {
            PROJECT_DIR => {
                let path = project?.path.as_ref()?;
                Some(std::env::current_dir().unwrap_or_default().join(path).into_os_string())
            }
            PROJECT_MOUNT => project?.mount_point.clone().map(PathBuf::into_os_string),
            SESSION_IDLE => seconds(session?.idle_timeout_seconds),
            SESSION_LIFETIME => seconds(session?.max_lifetime_seconds),
            _ => None,
        }
    }

    /// The names of variables that sandboxed programs see too.
    ///
    /// # Errors
    /// One that cannot be.
    pub(super) fn inherited(&self) -> Result<Vec<String>, String> {
        let vars = self.project.iter().flat_map(|project| &project.inherit_env.vars);
        vars.clone()
            .try_for_each(|name| inheritable(name))
            .map_err(|problem| format!("cannot be used: {problem}"))?;
        Ok(vars.cloned().collect())
    }

    /// The environments that it names.
    ///
    /// # Errors
    /// The first that cannot be.
    pub(super) fn named(&self) -> Result<Vec<Named>, String> {
        let named = self.environments.iter();
        named
            .map(|(name, environment)| {
                let refused =
                    |problem: &str| format!("cannot be used: the environment {name:?} {problem}");
                if !is_name(name) {
                    return Err(refused(
                        "has no proper name: 1 to 64 letters, digits, `_`, `.` or `-`",
                    ));
                }
                environment.named(name).map_err(|problem| refused(&problem))
            })
            .collect()
    }
}

impl Environment {
    fn named(&self, name: &str) -> Result<Named, String> {
        if self.backend.as_deref().is_some_and(|backend| backend != "jail") {
            return Err(
                "names a `backend` other than jail; NIX_SANDBOX_BACKEND chooses for all".into()
            );
        }
        let artifact = match (&self.artifact, &self.exec) {
            (Some(artifact), None) => artifact.clone(),
            (None, Some(exec)) => above(exec).ok_or(
                "has an `exec` that is no `bin/run` of an artifact; give `artifact`, a path",
            )?,
            (Some(_), Some(_)) => return Err("has both `artifact` and `exec`; give one".into()),
            (None, None) => return Err("has no `artifact`; give the path that Nix built".into()),
        };
        if !artifact.is_absolute() {
            return Err(format!("has the artifact {artifact:?}, which is no absolute path"));
        }
        let limits = LimitOverrides {
            time: self.timeout_seconds,
            memory: self.memory_mb.map(|mib| mib.saturating_mul(1 << 20)),
            ..LimitOverrides::default()
        };
        limits.apply(&mut Limits::default()).map_err(|error| format!("cannot have {error}"))?;
        Ok(Named { name: name.to_owned(), artifact, limits })
    }
}

/// The artifact in which a wrapper lies.
fn above(exec: &Path) -> Option<PathBuf> {
    let inside = exec.ends_with("bin/run");
    inside.then(|| exec.ancestors().nth(2).map(Path::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<Vec<Named>, String> {
        let euid = nix::unistd::geteuid().as_raw();
        Metadata::read(OsStr::new(text), euid)?.named()
    }

    #[test]
    fn environments_are_artifacts_or_the_predecessor_s_wrappers_in_them() {
        let all = named(
            r#"{"environments": {
                "a": {"artifact": "/nix/store/x-a"},
                "b": {"backend": "jail", "exec": "/nix/store/x-b/bin/run",
                      "session_exec": "/nix/store/x-b/bin/session-run",
                      "interpreter_type": "bash", "timeout_seconds": 60, "memory_mb": 64}
            }}"#,
        );
        let all = all.expect("named");
        assert_eq!(
            (all[0].name.as_str(), all[0].artifact.as_path()),
            ("a", Path::new("/nix/store/x-a"))
        );
        assert_eq!(all[1].artifact, Path::new("/nix/store/x-b"));
        assert_eq!((all[1].limits.time, all[1].limits.memory), (Some(60.0), Some(64 << 20)));
    }

    #[test]
    fn what_is_odd_is_refused_in_a_sentence() {
        for (text, says) in [
            ("[]", "must be a JSON object, or `@` and an absolute path"),
            ("@x", "must be a JSON object, or `@` and an absolute path"),
            ("{", "cannot be used: EOF while parsing an object at line 1 column 1"),
            (r#"{"environment": {}}"#, "cannot be used: unknown field `environment`"),
            (
                r#"{"environments": {"a": {}}}"#,
                "cannot be used: the environment \"a\" has no `artifact`; give the path that Nix built",
            ),
            (
                r#"{"environments": {"a b": {"artifact": "/x"}}}"#,
                "cannot be used: the environment \"a b\" has no proper name",
            ),
            (
                r#"{"environments": {"a": {"artifact": "x"}}}"#,
                "cannot be used: the environment \"a\" has the artifact \"x\", which is no absolute path",
            ),
            (
                r#"{"environments": {"a": {"exec": "/nix/store/x"}}}"#,
                "cannot be used: the environment \"a\" has an `exec` that is no `bin/run`",
            ),
            (
                r#"{"environments": {"a": {"artifact": "/x", "backend": "microvm"}}}"#,
                "cannot be used: the environment \"a\" names a `backend` other than jail",
            ),
            (
                r#"{"environments": {"a": {"artifact": "/x", "memory_mb": 0}}}"#,
                "cannot be used: the environment \"a\" cannot have ",
            ),
            (
                r#"{"project": {"use_flake": true}}"#,
                "cannot be used: `project.use_flake` needs `environments.project`",
            ),
        ] {
            let said = named(text).expect_err(text);
            assert!(said.starts_with(says), "{said}");
        }
    }

    #[test]
    fn a_file_is_read_only_if_we_or_root_wrote_it() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), r#"{"environments": {"a": {"artifact": "/x"}}}"#)
            .expect("write");
        let at = format!("@{}", file.path().display());
        assert_eq!(named(&at).expect("read").len(), 1);
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666))
            .expect("mode");
        assert!(named(&at).expect_err("anybody's").contains("can be changed by everybody"));
    }
}
