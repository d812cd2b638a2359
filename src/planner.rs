//! Request + environment + settings → [`Plan`]. Pure: it looks at nothing but its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::agent::DIRECTORY;
use crate::environment::{Environment, Interpreter};
use crate::plan::{
    Access, Command, HostFile, Identity, Ids, LimitError, LimitOverrides, Limits, Mount, MountKind,
    OUTPUTS, Plan, PlanBuilder, PlanError, ProcMode, Wall,
};
use crate::policy::Profile;
use crate::request::{Request, Work};

/// Where code and commands start, and what `HOME` and `TMPDIR` name.
pub const WORKSPACE: &str = "/workspace";

/// What the operator decided, for every request.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    /// The project and its place in the sandbox.
    pub project: Option<(HostFile, PathBuf)>,
    /// Limits over those of the environment.
    pub limits: LimitOverrides,
    /// Walls without which a run is refused, besides those that always are.
    pub require: BTreeSet<Wall>,
    /// How much the system-call filter allows.
    pub profile: Profile,
    /// What stands at `/proc`.
    pub proc: ProcMode,
    /// Environment variables of the host that payloads see, by name.
    pub variables: BTreeMap<OsString, OsString>,
    /// Whether long output of earlier runs stands at [`OUTPUTS`].
    pub outputs: bool,
}

/// Why a request cannot become a plan. Always the caller's or the operator's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlannerError {
    /// A time limit above the environment's.
    #[error("timeout is {asked} s; this environment allows at most {most} s")]
    Timeout {
        /// What was asked for, seconds.
        asked: String,
        /// The most, seconds.
        most: String,
    },
    /// A limit out of range.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The result would break a rule that no sandbox may break.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Makes the plan.
///
/// # Errors
/// See [`PlannerError`].
pub fn plan(
    request: &Request,
    environment: &Environment,
    ground: &Ground,
    outside: Ids,
) -> Result<Plan, PlannerError> {
    let limits = limits(request, environment, ground)?;
    let access = Access {
        profile: ground.profile,
        wearer: environment.interpreter.wearer(),
        proc: ground.proc,
        require: ground.require.clone(),
    };
    let builder = PlanBuilder {
        environment: environment.name.clone(),
        identity: Identity::of(outside),
        mounts: mounts(request, environment, ground, &limits),
        limits,
        access,
        command: command(request, environment, ground),
    };
    Ok(builder.build()?)
}

/// Defaults, then the environment's, then the settings', then the command line's, then what the
/// caller may choose.
fn limits(
    request: &Request,
    environment: &Environment,
    ground: &Ground,
) -> Result<Limits, PlannerError> {
    let mut limits = Limits::default();
    environment.limits.apply(&mut limits)?;
    ground.limits.apply(&mut limits)?;
    request.limits.apply(&mut limits)?;
    if let Some(timeout) = request.timeout {
        let most = limits.time().max(MOST_TIME);
        if timeout > most || timeout.is_zero() {
            let seconds = |time: Duration| time.as_secs_f64().to_string();
            return Err(PlannerError::Timeout { asked: seconds(timeout), most: seconds(most) });
        }
        limits.time_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
    } else if request.terminal.is_some() && request.limits.time.is_none() {
        limits.time_ms = Limits::LONGEST_MS;
    }
    limits.check()?;
    Ok(limits)
}

/// What a request may ask for where its environment's own limit is shorter.
pub const MOST_TIME: Duration = Duration::from_secs(600);

fn mounts(
    request: &Request,
    environment: &Environment,
    ground: &Ground,
    limits: &Limits,
) -> Vec<Mount> {
    let writable = |mode| MountKind::Tmpfs { size: limits.workspace, inodes: limits.files, mode };
    let mut mounts = environment.mounts.clone();
    let mut add = |at: &str, kind| mounts.push(Mount { at: PathBuf::from(at), kind });
    add("/proc", MountKind::Proc);
    add("/dev", MountKind::Devices { shm: limits.workspace.min(limits.memory / 2) });
    add("/tmp", writable(0o1777));
    add(WORKSPACE, writable(0o755));
    if ground.outputs {
        add(OUTPUTS, MountKind::Outputs);
    }
    for (at, content) in etc() {
        add(at, MountKind::File { content });
    }
    let files = match (&request.work, &request.session) {
        (Work::Code(_), None) => {
            add(environment.interpreter.code_file(), MountKind::Code);
            environment.interpreter.library()
        }
        (Work::Code(_), Some(_)) => environment.interpreter.agent().files,
        (Work::Command(_), _) => &[],
    };
    for (name, content) in files {
        add(&format!("{DIRECTORY}/{name}"), MountKind::File { content: (*content).to_owned() });
    }
    if let Some((source, at)) = &ground.project {
        mounts.push(Mount { at: at.clone(), kind: MountKind::Bind { source: source.clone() } });
    }
    mounts
}

/// What git takes for the machine's settings.
const GITCONFIG: &str = "/etc/gitconfig";

/// What programs look up: who they are, who `localhost` is, and that there is no name server, so
/// that look-ups fail at once instead of after 30 seconds.
fn etc() -> [(&'static str, String); 6] {
    let Ids { uid, gid } = Identity::INSIDE;
    let user = Identity::USER;
    [
        (
            "/etc/passwd",
            format!(
                "{user}:x:{uid}:{gid}::{WORKSPACE}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n"
            ),
        ),
        ("/etc/group", format!("{user}:x:{gid}:\nnogroup:x:65534:\n")),
        (
            "/etc/hosts",
            format!(
                "127.0.0.1 localhost {0}\n::1 localhost ip6-localhost {0}\n",
                Identity::HOSTNAME
            ),
        ),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
        ("/etc/resolv.conf", "# no network, no name server\n".to_owned()),
        // Started by root, a sandbox shows a project of root's as nobody's. Inside there is one user,
        // and a hook or a setting of the repository gains nothing that its code has not.
        (GITCONFIG, "[safe]\n\tdirectory = *\n".to_owned()),
    ]
}

/// The interpreter, its options, the file that it runs.
fn words(environment: &Environment, options: &[&str], file: &str) -> Vec<OsString> {
    std::iter::once(environment.program.clone().into_os_string())
        .chain(options.iter().map(OsString::from))
        .chain([OsString::from(file)])
        .collect()
}

/// Lets Python find what the code leaves in its working directory, as a session does, and a module by which
/// `plt.show()` saves files, if nobody has decided otherwise: here and in scripts that the code starts. Where
/// there is an agent, it does that itself.
fn offer_modules(variables: &mut BTreeMap<OsString, OsString>) {
    let mut offered = vec![PathBuf::from(WORKSPACE)];
    if !variables.contains_key(OsStr::new("MPLBACKEND")) {
        variables.insert("MPLBACKEND".into(), "module://figure_files".into());
        offered.push(Path::new(DIRECTORY).join("lib"));
    }
    let places = variables.entry("PYTHONPATH".into()).or_default();
    for place in offered {
        if !places.is_empty() {
            places.push(":");
        }
        places.push(place);
    }
}

/// Variables that a sandbox sets itself, whatever else is asked for.
pub const OWN_VARIABLES: [&str; 8] =
    ["PATH", "HOME", "TMPDIR", "USER", "LANG", "TERM", "TAR_OPTIONS", "GIT_CONFIG_SYSTEM"];

fn command(request: &Request, environment: &Environment, ground: &Ground) -> Command {
    let jails = environment.jails.as_ref();
    let (arguments, jail) = match (&request.work, &request.session) {
        (Work::Command(arguments), _) => (arguments.clone(), None),
        (Work::Code(_), None) => {
            let interpreter = environment.interpreter;
            let arguments = words(environment, interpreter.options(), interpreter.code_file());
            (arguments, jails.map(|jails| jails.run.clone()))
        }
        (Work::Code(_), Some(_)) => {
            let agent = environment.interpreter.agent();
            let program = agent.files.first().map_or("", |(name, _)| name);
            let arguments = words(environment, agent.options, &format!("{DIRECTORY}/{program}"));
            (arguments, jails.map(|jails| jails.session.clone()))
        }
    };
    let mut variables = ground.variables.clone();
    variables.extend(environment.variables.clone());
    if let (Work::Code(_), None, Interpreter::Python) =
        (&request.work, &request.session, environment.interpreter)
    {
        offer_modules(&mut variables);
    }
    let path: Vec<&Path> = environment.path.iter().map(PathBuf::as_path).collect();
    let path = std::env::join_paths(path).unwrap_or_default();
    let fixed: [(&str, OsString); OWN_VARIABLES.len()] = [
        ("PATH", path),
        ("HOME", WORKSPACE.into()),
        ("TMPDIR", WORKSPACE.into()),
        ("USER", Identity::USER.into()),
        ("LANG", "C.UTF-8".into()),
        ("TERM", request.terminal.clone().unwrap_or_else(|| "dumb".into())),
        // chown to an unmapped owner fails with EINVAL, which tar does not expect.
        ("TAR_OPTIONS", "--no-same-owner".into()),
        // A git of another prefix looks for it elsewhere.
        ("GIT_CONFIG_SYSTEM", GITCONFIG.into()),
    ];
    variables.extend(fixed.map(|(name, value)| (OsString::from(name), value)));
    Command { arguments, variables, directory: PathBuf::from(WORKSPACE), jail }
}
