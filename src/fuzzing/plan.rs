//! Plans out of arbitrary parts, and the order of their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::dice::Dice;
use crate::engine::steps::{Ahead, Network, Step, bind_sources, payload, steps, template};
use crate::plan::{
    Access, Command, FileIdentity, HostFile, Identity, Ids, Jail, Limits, Mount, MountKind, Plan,
    PlanBuilder, ProcMode, Wall,
};
use crate::policy::{Profile, Wearer};

/// What places are made of: what matters, what is odd, and what is neither.
const WORDS: [&[u8]; 24] = [
    b"proc",
    b"dev",
    b"sys",
    b"tmp",
    b"workspace",
    b"project",
    b"nix",
    b"store",
    b"etc",
    b"outputs",
    b"run",
    b"usr",
    b"home",
    b"..",
    b".",
    b"",
    b"a",
    b"self",
    b"pts",
    b"shm",
    b"x\0y",
    b"\xff\xfe",
    b"proc ",
    b"a\nb",
];

fn place(dice: &mut Dice<'_>) -> PathBuf {
    let mut bytes = Vec::new();
    let parts = dice.byte() % 5;
    if dice.byte() % 16 < 15 {
        bytes.push(b'/');
    }
    for part in 0..parts {
        if part > 0 {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(dice.pick(&WORDS));
    }
    if dice.byte() == 77 {
        bytes.extend([b'x'; 4096]);
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn kind(dice: &mut Dice<'_>) -> MountKind {
    const SIZES: [u64; 5] = [0, 1, 4096, 1 << 30, u64::MAX];
    match dice.byte() % 9 {
        0 => MountKind::Bind {
            source: HostFile {
                path: place(dice),
                directory: dice.byte().is_multiple_of(2),
                identity: FileIdentity { device: 1, inode: dice.number(&SIZES) },
            },
        },
        1 => MountKind::Symlink { target: place(dice) },
        2 => MountKind::File { content: String::from_utf8_lossy(dice.bytes(40)).into_owned() },
        3 => MountKind::Code,
        4 => MountKind::Directory,
        5 => MountKind::Tmpfs {
            size: dice.number(&SIZES),
            inodes: dice.number(&SIZES),
            mode: u32::from(dice.byte()) * 257,
        },
        6 => MountKind::Outputs,
        7 => MountKind::Proc,
        _ => MountKind::Devices { shm: dice.number(&SIZES) },
    }
}

fn ids(dice: &mut Dice<'_>) -> Ids {
    const IDS: [u32; 5] = [1000, 0, u32::MAX, 65534, 1];
    Ids { uid: dice.pick(&IDS), gid: dice.pick(&IDS) }
}

fn limits(dice: &mut Dice<'_>) -> Limits {
    let usual = Limits::default();
    let number = |dice: &mut Dice<'_>, usual: u64| match dice.byte() % 8 {
        7 => dice.number(&[0, 1, 16, 1 << 12, 1 << 22, 1 << 40, u64::MAX]),
        _ => usual,
    };
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Limits {
        memory: number(dice, usual.memory),
        swap: number(dice, usual.swap),
        pids: small(number(dice, u64::from(usual.pids))),
        cpu_milli: small(number(dice, u64::from(usual.cpu_milli))),
        workspace: number(dice, usual.workspace),
        files: number(dice, usual.files),
        output: number(dice, usual.output),
        time_ms: number(dice, usual.time_ms),
    }
}

fn jail(dice: &mut Dice<'_>) -> Option<Jail> {
    (dice.byte() % 8 == 7).then(|| Jail {
        store: place(dice),
        program: HostFile {
            path: place(dice),
            directory: dice.byte().is_multiple_of(2),
            identity: FileIdentity { device: 1, inode: 1 },
        },
    })
}

fn builder(dice: &mut Dice<'_>) -> PlanBuilder {
    let mounts =
        (0..dice.byte() % 12).map(|_| Mount { at: place(dice), kind: kind(dice) }).collect();
    let usual = dice.byte() % 4 < 3;
    let name = dice.text();
    let identity = match usual {
        true => Identity::of(Ids { uid: 1000, gid: 1000 }),
        false => Identity {
            inside: ids(dice),
            outside: ids(dice),
            hostname: String::from_utf8_lossy(name.as_bytes()).into_owned(),
        },
    };
    let arguments = match usual {
        true => vec!["/bin/true".into()],
        false => (0..dice.byte() % 4).map(|_| dice.text()).collect(),
    };
    PlanBuilder {
        environment: "e".to_owned(),
        identity,
        mounts,
        limits: limits(dice),
        access: Access {
            profile: dice.pick(&[Profile::Default, Profile::Strict, Profile::Compat]),
            wearer: dice.pick(&[Wearer::Shell, Wearer::Python, Wearer::Node, Wearer::Base]),
            proc: dice.pick(&[ProcMode::Fresh, ProcMode::None]),
            require: BTreeSet::from([dice.pick(&Wall::ALL)]),
        },
        command: Command {
            arguments,
            variables: BTreeMap::from([(
                if usual { "A".into() } else { dice.text() },
                dice.text(),
            )]),
            directory: if usual { PathBuf::from("/workspace") } else { place(dice) },
            jail: jail(dice),
        },
    }
}

/// No plan that breaks a never comes out, nor off the wire.
pub fn plan_build(bytes: &[u8]) {
    let builder = builder(&mut Dice::new(bytes));
    // What has no form on the wire is refused there too.
    let wire = serde_json::to_string(&builder);
    let off_the_wire = wire.and_then(|wire| serde_json::from_str::<Plan>(&wire));
    match builder.build() {
        Ok(plan) => {
            nevers(&plan);
            assert_eq!(off_the_wire.expect("the same plan off the wire"), plan);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            off_the_wire.expect_err("what cannot be built cannot come off the wire");
        }
    }
}

/// What must never be, said in other words than the builder's.
fn nevers(plan: &Plan) {
    let Identity { inside, outside, hostname } = plan.identity();
    for id in [inside.uid, outside.uid] {
        assert!(id != 0, "root");
        assert!(id != u32::MAX, "for the kernel that means: leave it as it is");
    }
    assert!(inside.gid != u32::MAX && outside.gid != u32::MAX);
    assert!(!hostname.is_empty() && !hostname.contains(['/', '\0', '\n', '.']));
    plan.limits().check().expect("limits are in range");
    let mut places = BTreeMap::new();
    for Mount { at, kind } in plan.mounts() {
        assert!(is_plain(at), "{at:?}");
        assert!(places.insert(at.as_path(), kind).is_none(), "{at:?} twice");
    }
    for (at, kind) in &places {
        let holds = at.ancestors().skip(1).filter_map(|parent| places.get(parent));
        for parent in holds {
            assert_eq!(**parent, MountKind::Directory, "{at:?} below something that is mounted");
        }
        never_there(at, kind);
    }
    let inside = |path: &str| plan.is_writable(Path::new(path));
    for path in
        ["/", "/project", "/project/x", "/nix/store", "/proc/sys", "/dev", "/etc", "/usr/bin"]
    {
        assert!(!inside(path), "{path} is writable");
    }
    let Command { arguments, variables, directory, jail } = plan.command();
    assert!(!arguments.is_empty() && !arguments[0].is_empty() && is_plain(directory));
    assert!(!variables.keys().any(|name| name.is_empty() || name.as_bytes().contains(&b'=')));
    if let Some(Jail { program, store }) = jail {
        assert!(is_plain(store) && is_plain(&program.path) && program.path.starts_with(store));
    }
    let words = arguments.iter().chain(variables.keys()).chain(variables.values());
    assert!(words.into_iter().all(|word| !word.as_bytes().contains(&0)));
}

fn never_there(at: &Path, kind: &MountKind) {
    let top = at.components().nth(1).map(|top| top.as_os_str().to_owned());
    let top = top.as_deref().map_or(&b""[..], OsStrExt::as_bytes);
    match kind {
        MountKind::Proc => assert_eq!(at, Path::new("/proc")),
        MountKind::Outputs => assert_eq!(at, Path::new("/outputs")),
        MountKind::Devices { shm } => {
            assert_eq!(at, Path::new("/dev"));
            assert!(*shm > 0, "no size means any size");
        }
        _ => assert!(!matches!(top, b"" | b"proc" | b"dev" | b"sys"), "{kind:?} at {at:?}"),
    }
    match kind {
        MountKind::Tmpfs { size, inodes, mode } => {
            assert!(at == Path::new("/tmp") || at == Path::new("/workspace"), "writable {at:?}");
            assert!(*size > 0 && *inodes > 0, "no size means any size");
            assert!(*mode <= 0o1777, "no set-id directory: {mode:o}");
        }
        MountKind::Bind { source } => {
            let path = &source.path;
            assert!(is_plain(path) && path != Path::new("/"), "{path:?}");
            let kernel = ["/proc", "/sys", "/dev", "/run"];
            assert!(!kernel.iter().any(|place| path.starts_with(place)), "{path:?}");
        }
        _ => {}
    }
}

fn is_plain(path: &Path) -> bool {
    let rebuilt: PathBuf = path
        .components()
        .filter(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        .collect();
    let bytes = path.as_os_str().as_bytes();
    rebuilt.as_os_str() == path.as_os_str() && bytes.first() == Some(&b'/') && !bytes.contains(&0)
}

/// Whatever the plan: each step stands after what it needs and before what would prevent it.
pub fn step_order(bytes: &[u8]) {
    let Ok(plan) = builder(&mut Dice::new(bytes)).build() else { return };
    let order = steps(&plan, Ahead::default());
    let at = |wanted: &Step<'_>| {
        let found: Vec<usize> = (0..order.len()).filter(|at| order[*at] == *wanted).collect();
        assert_eq!(found.len(), 1, "{wanted:?}");
        found[0]
    };
    let fresh = plan.access().proc == ProcMode::Fresh;
    let masks = [Step::OpenNamespaceLimits, Step::MaskProc, Step::WriteNamespaceLimits];
    let begin = [
        Step::LeaveLauncher,
        Step::MapIds,
        Step::ForgetArguments,
        Step::TakeIds,
        Step::DieWithLauncher,
        Step::PrivateMounts,
    ];
    let end =
        [Step::PlaceDescriptors, Step::DropCapabilities, Step::NoNewPrivileges, Step::Landlock];
    let mut fixed: Vec<Step<'_>> =
        begin.into_iter().chain([Step::EnterRoot, Step::SealRoot]).collect();
    fixed.extend(masks.into_iter().filter(|_| fresh));
    fixed.extend(end);
    let places: Vec<usize> = fixed.iter().map(at).collect();
    assert!(places.is_sorted(), "{order:?}");
    assert!(places[0] == 0 && places.last() == Some(&(order.len() - 1)), "{order:?}");
    for terminal in [false, true] {
        let theirs = payload(&plan, terminal);
        let at = |wanted: &Step<'_>| theirs.iter().position(|step| step == wanted);
        let order =
            [Step::NestedLandlock, Step::AwaitOrder, Step::Rlimits(plan.limits()), Step::TellReady];
        assert!(
            order.iter().all(|step| at(step).is_some()) && order.iter().map(at).is_sorted(),
            "{theirs:?}"
        );
    }
    assert!(at(&Step::Undumpable) > at(&Step::MapIds));
    if !fresh {
        assert!(
            !order.iter().any(|step| masks_of_proc(step)),
            "nothing is written to a /proc that is none"
        );
    }
    let root = order.iter().position(|step| matches!(step, Step::NewRoot { .. })).expect("a root");
    in_two_parts(&plan, &order);
    let entered = at(&Step::EnterRoot);
    mounts_stand_between(&plan, &order, at(&Step::PrivateMounts).max(root), entered);
}

/// What a template holds and what is added to it are together what a cold launch makes.
fn in_two_parts(plan: &Plan, order: &[Step<'_>]) {
    let own = plan.own_part();
    let made = [
        template(plan),
        steps(&own, Ahead { tree: true, network: Network::Joined, session: false }),
    ]
    .concat();
    let only_cold = [Step::LoopbackUp];
    for step in order.iter().filter(|step| !only_cold.contains(step)) {
        assert!(made.contains(step), "{step:?} is in neither part");
    }
    let places =
        |step: &&Step<'_>| matches!(step, Step::Directory(_) | Step::InTemplate | Step::Proc);
    for step in made.iter().filter(|step| !places(step)) {
        assert!(order.contains(step), "{step:?} is in no cold launch");
    }
}

fn masks_of_proc(step: &Step<'_>) -> bool {
    matches!(
        step,
        Step::OpenNamespaceLimits | Step::MaskProc | Step::WriteNamespaceLimits | Step::Proc
    )
}

/// What is mounted is mounted in the new root, before it is entered; parents come before children, and
/// each bind has the number of its source.
fn mounts_stand_between(plan: &Plan, order: &[Step<'_>], root: usize, entered: usize) {
    let sources: Vec<_> = bind_sources(plan).collect();
    let mut binds = 0;
    let mut seen: Vec<&Path> = Vec::new();
    for (number, step) in order.iter().enumerate() {
        let place = match step {
            Step::Bind(at, source, count) => {
                assert_eq!((*count, sources[binds]), (binds, (&at.to_path_buf(), *source)));
                binds += 1;
                at
            }
            // The sandbox's own, which no plan may name.
            Step::Directory(at) if at.starts_with("/dev") => continue,
            Step::Directory(at)
            | Step::Symlink(at, _)
            | Step::File(at, _)
            | Step::Code(at)
            | Step::Outputs(at) => at,
            Step::Tmpfs { at, .. } => at,
            Step::Proc => Path::new("/proc"),
            Step::DeviceLinks => Path::new("/dev"),
            _ => continue,
        };
        assert!((root + 1..entered).contains(&number), "{step:?} outside of the new root");
        assert!(
            !seen.iter().any(|later| later.starts_with(place)),
            "{place:?} would cover {seen:?}"
        );
        seen.push(place);
    }
    assert_eq!(binds, sources.len(), "every bind is a step");
    assert_eq!(seen.len(), plan.mounts().len(), "every mount is a step");
}
