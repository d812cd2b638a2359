//! What parts of a launch and of an answer cost that need no kernel: `cargo bench --bench parts`.

use std::hint::black_box;
use std::path::PathBuf;

use divan::Bencher;
use divan::counter::BytesCount;
use nix_sandbox::backend::Report;
use nix_sandbox::plan::{
    Access, Command, FileIdentity, HostFile, Identity, Limits, Mount, MountKind, Plan, PlanBuilder,
    ProcMode,
};
use nix_sandbox::policy::{self, Arch, Call, Profile, Wearer};
use nix_sandbox::runner::Filter;
use nix_sandbox::session::protocol::{Lines, Tag};
use nix_sandbox::settings::Settings;

fn main() {
    divan::main();
}

/// For a closure of so many paths.
fn builder(paths: u64) -> PlanBuilder {
    let limits = Limits::default();
    let bind = |number| MountKind::Bind {
        source: HostFile {
            path: PathBuf::from(format!("/nix/store/{number:032}-path")),
            directory: true,
            identity: FileIdentity { device: 1, inode: number },
        },
    };
    let tmpfs = |mode| MountKind::Tmpfs { size: limits.workspace, inodes: limits.files, mode };
    let mount = |at: &str, kind| Mount { at: PathBuf::from(at), kind };
    let mut mounts: Vec<Mount> = (0..paths)
        .map(|number| mount(&format!("/nix/store/{number:032}-path"), bind(number)))
        .collect();
    mounts.push(mount("/proc", MountKind::Proc));
    mounts.push(mount("/dev", MountKind::Devices { shm: limits.memory / 2 }));
    mounts.push(mount("/tmp", tmpfs(0o1777)));
    mounts.push(mount("/workspace", tmpfs(0o755)));
    PlanBuilder {
        environment: "bench".to_owned(),
        identity: Identity::of(Identity::FALLBACK_OUTSIDE),
        mounts,
        limits,
        access: Access {
            profile: Profile::Default,
            wearer: Wearer::Python,
            proc: ProcMode::Fresh,
            require: std::iter::empty().collect(),
        },
        command: Command {
            arguments: vec!["/nix/store/python3".into(), "/code/main.py".into()],
            variables: std::iter::empty().collect(),
            directory: PathBuf::from("/workspace"),
            jail: None,
        },
    }
}

fn plan(paths: u64) -> Plan {
    builder(paths).build().expect("a plan")
}

const PATHS: [u64; 3] = [10, 100, 1000];

#[divan::bench(args = PATHS)]
fn a_plan_is_built_and_checked(bencher: Bencher<'_, '_>, paths: u64) {
    bencher.with_inputs(|| builder(paths)).bench_values(PlanBuilder::build);
}

#[divan::bench(args = PATHS)]
fn a_plan_is_compared_with_that_of_a_standing_sandbox(bencher: Bencher<'_, '_>, paths: u64) {
    let (one, other) = (plan(paths), plan(paths));
    bencher.bench(|| black_box(&one).stands_for(black_box(&other)));
}

#[divan::bench]
fn a_filter_is_compiled() -> policy::Program {
    policy::compile(Wearer::Python, Profile::Default, Arch::X86_64).expect("a filter")
}

/// read(2) and others that every program makes, and one that none may.
#[divan::bench(args = [0, 1, 9, 202, 257, 321])]
fn a_filter_decides(bencher: Bencher<'_, '_>, nr: u32) {
    let filter = policy::compile(Wearer::Python, Profile::Default, Arch::X86_64).expect("a filter");
    let call = Call { arch: Arch::X86_64.audit(), nr, args: [0; 6] };
    bencher.bench(|| filter.evaluate(black_box(&call)));
}

#[divan::bench]
fn a_report_is_read() -> Report {
    let line = r#"{"ended":{"ending":{"code":0},"wall_us":1234,"cpu_us":987,"peak_memory":9437184,"alone":true}}"#;
    Report::parse(black_box(line.as_bytes())).expect("a report")
}

#[divan::bench]
fn a_request_to_an_agent_and_its_answer() {
    let tag = Tag::fresh(7).expect("a tag");
    let request = tag.request(black_box(b"print(1)"));
    let head = request.split(|byte| *byte == b' ').nth(2).expect("a nonce");
    let mut lines = Lines::default();
    lines.push(format!("done 7 {} 0\n", String::from_utf8_lossy(head)).as_bytes());
    black_box(lines.next(Some(&tag)).expect("the answer"));
}

const MIB: usize = 1 << 20;

/// Coloured lines, as compilers write them.
fn output() -> Vec<u8> {
    b"\x1b[1;31merror\x1b[0m: something is amiss in \xe2\x80\x98here\xe2\x80\x99\n"
        .iter()
        .copied()
        .cycle()
        .take(MIB)
        .collect()
}

#[divan::bench]
fn output_on_its_way_to_a_terminal_is_shown(bencher: Bencher<'_, '_>) {
    let output = output();
    bencher.counter(BytesCount::new(MIB)).bench(|| Filter::text().pass(black_box(&output)));
}

#[divan::bench]
fn output_of_a_program_with_a_terminal_is_filtered(bencher: Bencher<'_, '_>) {
    let output = output();
    bencher.counter(BytesCount::new(MIB)).bench(|| Filter::drawing().pass(black_box(&output)));
}

#[divan::bench]
fn settings_are_read() -> Settings {
    let variables = |name: &str| match name {
        "HOME" => Some("/nonexistent".into()),
        "NIX_SANDBOX_POOL" => Some("4".into()),
        _ => None,
    };
    Settings::load(&variables, 1000).expect("settings")
}
