//! Who is measured.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getegid, geteuid};
use nix_sandbox::backend::native::Native;
use nix_sandbox::backend::{Backend, Ends, Handover};
use nix_sandbox::engine::Launcher;
use nix_sandbox::engine::cgroup::{Cgroups, Scope};
use nix_sandbox::engine::sources::Sources;
use nix_sandbox::outcome::Ending;
use nix_sandbox::plan::{
    Access, Command as Run, Identity, Ids, Limits, Mount, MountKind, Plan, PlanBuilder, ProcMode,
};
use nix_sandbox::policy::{Profile, Wearer};
use nix_sandbox::runner::Cancel;
use nix_sandbox::supervisor::{Channels, Watch};

use crate::floor::{self, Net};
use crate::others;
use crate::workplace::{Workplace, host_file};

/// One who is measured: each call is one sandbox, from nothing to its end.
pub(crate) struct Contestant<'a> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnMut() + Send + 'a>,
    /// Waits, after a round, until it does nothing any more: it is nobody else's time.
    pub(crate) settle: Box<dyn FnMut() + Send + 'a>,
}

impl<'a> Contestant<'a> {
    fn and_then(self, settle: impl FnMut() + Send + 'a) -> Self {
        Self { settle: Box::new(settle), ..self }
    }
}

pub(crate) fn contestant<'a>(
    name: impl Into<String>,
    run: impl FnMut() + Send + 'a,
) -> Contestant<'a> {
    Contestant { name: name.into(), run: Box::new(run), settle: Box::new(|| {}) }
}

/// Our server, three ways.
pub(crate) struct Servers {
    /// Every launch from the beginning.
    pub(crate) cold: Native,
    /// File trees and networks made ahead.
    pub(crate) template: Native,
    /// Sandboxes that stand ready.
    pub(crate) blank: Native,
}

/// Sandboxes that the last one keeps.
pub(crate) const POOL: usize = 16;

/// To be called while this process has one thread.
pub(crate) fn servers() -> Servers {
    let ids = outside();
    let cold = Launcher::spawn(ids).expect("a launcher");
    let [template, blank] = [(); 2].map(|()| Launcher::spawn_with_outputs(ids).expect("one").0);
    let native =
        |launcher| Native::new(launcher, Sources::default(), Cgroups::find(ids, Scope::Never));
    Servers { cold: native(cold), template: native(template), blank: native(blank).with_pool(POOL) }
}

pub(crate) fn outside() -> Ids {
    match geteuid().as_raw() {
        0 => Identity::FALLBACK_OUTSIDE,
        uid => Ids { uid, gid: getegid().as_raw() },
    }
}

/// All of them, each with a closure of so many paths.
pub(crate) fn with_closure<'a>(
    workplace: &'a Workplace,
    servers: &'a Servers,
    paths: usize,
) -> Vec<Contestant<'a>> {
    let plan = plan(workplace, paths);
    let mut all = vec![
        contestant("bubblewrap", bubblewrap(workplace, paths)),
        server("server, cold", &servers.cold, plan.clone()),
        server("server, template", &servers.template, plan.clone()),
        server("server, blank", &servers.blank, plan),
    ];
    if paths == 10 {
        all.push(contestant("floor", floor::run(workplace, Net::Shared)));
        all.push(contestant("plain spawn", plain(workplace)));
        all.push(contestant("command line", command_line(workplace)));
        let start = || spawn(Command::new(binary()).arg("--version"));
        all.push(contestant("command line, nothing but its start", start));
        all.extend(others::installed(workplace, paths));
    }
    all
}

fn plain(workplace: &Workplace) -> impl FnMut() + Send + use<> {
    let program = workplace.program();
    move || spawn(&mut Command::new(&program))
}

fn command_line(workplace: &Workplace) -> impl FnMut() + Send + use<> {
    let directory = workplace.bin();
    move || {
        spawn(
            Command::new(binary())
                .args(["exec", "--env", "shell", "--", "/project/true"])
                .env("PROJECT_DIR", &directory)
                .env("HOME", "/nonexistent"),
        );
    }
}

/// The program that is measured.
pub(crate) fn binary() -> PathBuf {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/target/release/nix-sandbox-mcp");
    std::env::var_os("NIX_SANDBOX_BIN").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

/// Debian's bubblewrap with the same namespaces and the same view.
pub(crate) fn bubblewrap(workplace: &Workplace, paths: usize) -> impl FnMut() + Send + use<> {
    let mut words: Vec<String> = [
        "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try",
        "--proc /proc --dev /dev --tmpfs /tmp --tmpfs /workspace --die-with-parent --new-session",
    ]
    .iter()
    .flat_map(|line| line.split(' ').map(str::to_owned))
    .collect();
    for number in 0..paths {
        let path = workplace.store_path(number).display().to_string();
        words.extend(["--ro-bind".to_owned(), path, at(number).display().to_string()]);
    }
    let bin = workplace.bin().display().to_string();
    words.extend(["--ro-bind".to_owned(), bin, "/project".to_owned()]);
    words.extend(["--".to_owned(), "/project/true".to_owned()]);
    move || spawn(Command::new("bwrap").args(&words))
}

pub(crate) fn spawn(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{command:?}: {status:?}"
    );
}

pub(crate) fn at(number: usize) -> PathBuf {
    PathBuf::from(format!("/nix/store/{}", Workplace::store_name(number)))
}

/// The plan that a server would make of a request for such an environment.
pub(crate) fn plan(workplace: &Workplace, paths: usize) -> Plan {
    plan_of(workplace, paths, &["/project/true"])
}

pub(crate) fn plan_of(workplace: &Workplace, paths: usize, words: &[&str]) -> Plan {
    let limits = Limits::default();
    let tmpfs = |mode| MountKind::Tmpfs { size: limits.workspace, inodes: limits.files, mode };
    let bind = |path: PathBuf| MountKind::Bind { source: host_file(&path) };
    let mut mounts: Vec<Mount> = (0..paths)
        .map(|number| Mount { at: at(number), kind: bind(workplace.store_path(number)) })
        .collect();
    for (at, kind) in [
        ("/project", bind(workplace.bin())),
        ("/proc", MountKind::Proc),
        ("/dev", MountKind::Devices { shm: limits.memory / 2 }),
        ("/tmp", tmpfs(0o1777)),
        ("/workspace", tmpfs(0o755)),
    ] {
        mounts.push(Mount { at: PathBuf::from(at), kind });
    }
    let builder = PlanBuilder {
        environment: "bench".to_owned(),
        identity: Identity::of(outside()),
        mounts,
        limits,
        access: Access {
            profile: Profile::Default,
            wearer: Wearer::Shell,
            proc: ProcMode::Fresh,
            require: std::iter::empty().collect(),
        },
        command: Run {
            arguments: words.iter().map(Into::into).collect(),
            variables: std::iter::empty().collect(),
            directory: PathBuf::from("/workspace"),
            jail: None,
        },
    };
    builder.build().expect("a plan")
}

/// One of ours. The outcome is there before the sandbox has gone, and the next one is not made at once: a
/// round of another does not begin before.
fn server<'a>(name: &str, native: &'a Native, plan: Plan) -> Contestant<'a> {
    let ended = Arc::new(Mutex::new(None));
    let last = Arc::clone(&ended);
    let run = move || *ended.lock().expect("the last one") = Some(launch(native, &plan));
    contestant(name, run).and_then(move || {
        if let Some(pid1) = last.lock().expect("the last one").take() {
            let mut gone = [PollFd::new(pid1.as_fd(), PollFlags::POLLIN)];
            poll(&mut gone, PollTimeout::NONE).expect("its end");
        }
        native.wait_until_filled();
    })
}

/// One sandbox of a server, from the plan to the outcome; its pid 1, which may still have to end.
pub(crate) fn launch(native: &Native, plan: &Plan) -> OwnedFd {
    let (Ends { report, outputs, .. }, handover) = ends(plan);
    let started = native.start(plan.clone(), handover).expect("a sandbox");
    let cancel = Cancel::new().expect("a switch");
    let watch = Watch {
        pidfd: &started.pidfd,
        relay: started.relay.as_ref(),
        leaf: started.leaf.as_ref(),
        report,
        channels: Channels::Kept { input: None, outputs },
        limits: plan.limits(),
        cancel: cancel.as_fd(),
        signals: None,
    };
    let outcome = watch.to_end().expect("an outcome");
    assert_eq!(outcome.ending, Ending::Exited { code: 0 });
    started.pidfd
}

/// Nobody looks into the sandbox's `/workspace`.
pub(crate) fn ends(plan: &Plan) -> (Ends, Handover) {
    let (ends, handover) = Ends::new(plan.identity().outside).expect("pipes");
    (ends, Handover { workspace: None, ..handover })
}
