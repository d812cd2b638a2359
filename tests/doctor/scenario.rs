//! Bad hosts, each made around this process alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, chroot, getegid, geteuid};
use nix_sandbox::backend::{Backend, Ends, native::Native};
use nix_sandbox::engine::cgroup::NoCgroup;
use nix_sandbox::engine::{Launcher, sources::Sources};
use nix_sandbox::outcome::Ending;
use nix_sandbox::plan::{
    Access, Command as Payload, FileIdentity, HostFile, Identity, Ids, Limits, Mount, MountKind,
    Plan, PlanBuilder, ProcMode,
};
use nix_sandbox::policy::{Profile, Wearer};
use nix_sandbox::runner::Cancel;
use nix_sandbox::supervisor::{Channels, Watch};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};

/// Makes the host called `name` and becomes the doctor in it.
pub(crate) fn enter(name: &str) -> ExitCode {
    match name {
        "over-mounted" => {
            private_mounts();
            cover_proc();
        }
        "over-mounted-no-proc" => {
            private_mounts();
            cover_proc();
            become_doctor("no-proc");
        }
        "no-namespaces" => {
            private_mounts();
            fs::write("/proc/sys/user/max_user_namespaces", "0").expect("limit");
        }
        "chroot" => {
            private_mounts();
            into_chroot();
        }
        "filter" => filter(),
        "sandbox" => return sandbox(),
        _ => panic!("no scenario is called {name}"),
    }
    become_doctor("json")
}

fn become_doctor(form: &str) -> ! {
    // A name, not /proc/self/exe: with uid 0 mapped nowhere the process is not dumpable.
    let error =
        Command::new(std::env::args_os().next().expect("name")).args(["report", form]).exec();
    panic!("exec: {error}")
}

/// A mount namespace; for an ordinary user within a user namespace in which it stays itself.
fn private_mounts() {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        unshare(CloneFlags::CLONE_NEWNS).expect("unshare");
    } else {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).expect("unshare");
        fs::write("/proc/self/setgroups", "deny").expect("setgroups");
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).expect("uid_map");
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).expect("gid_map");
    }
    mount_at(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
}

fn mount_at(source: Option<&Path>, at: impl AsRef<Path>, kind: Option<&str>, flags: MsFlags) {
    let at = at.as_ref();
    mount(source, at, kind, flags, None::<&str>)
        .unwrap_or_else(|errno| panic!("mount {}: {errno}", at.display()));
}

fn cover_proc() {
    mount_at(None, "/proc/irq", Some("tmpfs"), MsFlags::empty());
    mount_at(Some(Path::new("/dev/null")), "/proc/key-users", None, MsFlags::MS_BIND);
}

/// A directory with what this program needs, which is no mount itself.
fn into_chroot() {
    let own = std::env::args_os().next().expect("name");
    let own = Path::new(&own);
    let base = own.parent().expect("directory").join("base");
    fs::create_dir_all(&base).expect("base");
    mount_at(None, &base, Some("tmpfs"), MsFlags::empty());
    let root = base.join("root");
    let shown = ["/usr", "/lib", "/lib64", "/proc", "/dev", "/nix"];
    for place in shown.map(Path::new).into_iter().chain([own.parent().expect("directory")]) {
        if place.is_dir() {
            let at = root.join(place.strip_prefix("/").expect("absolute"));
            fs::create_dir_all(&at).expect("place");
            // Not recursive where that would show the place below itself.
            let all = if place.starts_with("/tmp") { MsFlags::empty() } else { MsFlags::MS_REC };
            mount_at(Some(place), at, None, MsFlags::MS_BIND | all);
        }
    }
    chroot(&root).expect("chroot");
    chdir("/").expect("chdir");
}

/// What the default profile of container runtimes does to whoever lacks `CAP_SYS_ADMIN`.
fn filter() {
    let namespaces = u64::from(
        (CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP)
            .bits()
            .cast_unsigned(),
    );
    let bits = (0..32).map(|bit| 1_u64 << bit).filter(|bit| namespaces & bit != 0);
    let new_namespaces = bits
        .map(|bit| {
            let condition =
                SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)
                    .expect("condition");
            SeccompRule::new(vec![condition]).expect("rule")
        })
        .collect();
    let denied = [
        (nix::libc::SYS_unshare, vec![]),
        (nix::libc::SYS_setns, vec![]),
        (nix::libc::SYS_mount, vec![]),
        (nix::libc::SYS_keyctl, vec![]),
        (nix::libc::SYS_clone, new_namespaces),
    ];
    load(denied.into(), nix::libc::EPERM);
    load([(nix::libc::SYS_clone3, vec![])].into(), nix::libc::ENOSYS);
}

fn load(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) {
    let errno = SeccompAction::Errno(errno.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().expect("architecture");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).expect("filter");
    let program: BpfProgram = filter.try_into().expect("program");
    seccompiler::apply_filter(&program).expect("load");
}

/// The engine itself, with the doctor as its payload.
fn sandbox() -> ExitCode {
    let own = std::env::args_os().next().expect("name");
    let own = Path::new(&own).parent().expect("directory");
    let mut mounts = vec![
        at("/proc", MountKind::Proc),
        at("/dev", MountKind::Devices { shm: 1 << 20 }),
        at("/workspace", MountKind::Tmpfs { size: 1 << 20, inodes: 64, mode: 0o755 }),
        at("/tmp", MountKind::Tmpfs { size: 1 << 20, inodes: 64, mode: 0o1777 }),
        at("/doctor", bind(own)),
    ];
    for place in ["/usr", "/lib", "/lib64", "/nix"].map(Path::new) {
        match place.read_link() {
            Ok(target) => mounts.push(at(place, MountKind::Symlink { target })),
            Err(_) if place.is_dir() => mounts.push(at(place, bind(place))),
            Err(_) => {}
        }
    }
    let outside = if geteuid().is_root() {
        Identity::FALLBACK_OUTSIDE
    } else {
        Ids { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    };
    let plan = PlanBuilder {
        environment: "doctor".to_owned(),
        identity: Identity::of(outside),
        mounts,
        limits: Limits::default(),
        access: Access {
            profile: Profile::Default,
            wearer: Wearer::Shell,
            proc: ProcMode::Fresh,
            require: BTreeSet::new(),
        },
        command: Payload {
            arguments: ["/doctor/doctor", "report", "json"].map(Into::into).into(),
            variables: BTreeMap::new(),
            directory: "/workspace".into(),
            jail: None,
        },
    };
    let ending = run(plan.build().expect("plan"));
    ExitCode::from(ending.exit_code())
}

fn at(place: impl AsRef<Path>, kind: MountKind) -> Mount {
    Mount { at: place.as_ref().to_owned(), kind }
}

fn bind(path: &Path) -> MountKind {
    let metadata = fs::metadata(path).expect("source");
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    MountKind::Bind { source: HostFile { path: path.to_owned(), directory: true, identity } }
}

fn run(plan: Plan) -> Ending {
    let (limits, cancel) = (*plan.limits(), Cancel::new().expect("cancel"));
    let (ends, handover) = Ends::new(plan.identity().outside).expect("pipes");
    let Ends { report, outputs, workspace: _nobody_looks } = ends;
    let launcher = Launcher::direct().expect("launcher");
    let backend = Native::new(launcher, Sources::default(), Err(NoCgroup::NotMounted));
    let started = backend.start(plan, handover).expect("start");
    let channels = Channels::Kept { input: None, outputs };
    let (pidfd, cancel) = (&started.pidfd, cancel.as_fd());
    let outcome = Watch {
        pidfd,
        relay: None,
        leaf: None,
        report,
        channels,
        limits: &limits,
        cancel,
        signals: None,
    }
    .to_end()
    .expect("run");
    print!("{}", String::from_utf8_lossy(&outcome.stdout.to_bytes()));
    eprint!("{}", String::from_utf8_lossy(&outcome.stderr.to_bytes()));
    outcome.ending
}
