use super::super::catalog::Catalog;
use super::*;
use crate::plan::HostFile;
use nix::sys::stat::Mode;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const HASH: &str = "0123456789abcdfghijklmnpqrsvwxyz";

fn store_path(name: &str) -> String {
    format!("/nix/store/{HASH}-{name}")
}

/// A chroot store with a shell in it, and a directory of artifacts.
struct World {
    _keep: TempDir,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        let keep = tempfile::tempdir().expect("tempdir");
        let root = fs::canonicalize(keep.path()).expect("canonical");
        let world = Self { _keep: keep, root };
        world.program("bash/bin/bash");
        symlink("bash", world.in_store("bash/bin/sh")).expect("link");
        world.program("coreutils/bin/env");
        fs::create_dir_all(world.in_store("env/bin")).expect("mkdir");
        for name in ["bash/bin/bash", "bash/bin/sh", "coreutils/bin/env"] {
            let link = world.in_store("env/bin").join(Path::new(name).file_name().expect("name"));
            symlink(store_path(name), link).expect("link");
        }
        fs::write(world.in_store("a-file"), "x").expect("write");
        symlink(store_path("a-file"), world.in_store("a-link")).expect("link");
        fs::create_dir(world.artifacts()).expect("mkdir");
        world
    }

    fn artifacts(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    fn in_store(&self, name: &str) -> PathBuf {
        self.root.join(store_path(name).trim_start_matches('/'))
    }

    fn program(&self, name: &str) {
        let path = self.in_store(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
        fs::write(&path, "").expect("write");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod");
    }

    fn metadata(&self) -> Value {
        let closure = ["env", "bash", "coreutils", "a-file", "a-link"].map(store_path);
        json!({
            "version": 1, "name": "tools", "interpreter_type": "bash", "timeout_seconds": 5,
            "memory_mb": 64, "env": store_path("env"), "closure": closure,
            "store_dir": "/nix/store", "store_root": self.root, "later": ["versions", "say more"],
        })
    }

    fn sources(&self) -> Sources {
        let euid = nix::unistd::geteuid().as_raw();
        Sources { artifacts: Some(self.artifacts()), euid, ..Sources::default() }
    }

    /// Puts an artifact into the directory and returns the path of its `metadata.json`.
    fn add(&self, name: &str, metadata: &Value) -> PathBuf {
        self.write(name, &metadata.to_string())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let dir = self.artifacts().join(name);
        fs::create_dir_all(&dir).expect("mkdir");
        let file = dir.join("metadata.json");
        fs::write(&file, text).expect("write");
        file
    }

    /// The one artifact called `x` with this change to its metadata is skipped, and why.
    fn refused(&self, change: impl FnOnce(&mut Value), says: &str) {
        let mut metadata = self.metadata();
        change(&mut metadata);
        let file = self.add("x", &metadata);
        self.skipped(&format!("{}: {says}", file.display()));
    }

    fn skipped(&self, says: &str) {
        let catalog = Catalog::load(self.sources());
        let reasons: Vec<_> = catalog.skipped().iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, [says]);
        assert_eq!(catalog.names().count(), 3);
    }

    /// The artifact `tools` with this change is there but cannot be used, and why.
    fn unusable(&self, change: impl FnOnce(&mut Value), says: &str) {
        let mut metadata = self.metadata();
        change(&mut metadata);
        let file = self.add("x", &metadata);
        let catalog = Catalog::load(self.sources());
        assert_eq!(catalog.skipped(), []);
        let error = catalog.get("tools").expect_err(says).to_string();
        let start = "the environment \"tools\" cannot be used: ";
        assert_eq!(error, format!("{start}{}{says}", file.display()));
    }
}

#[test]
fn a_whole_artifact_becomes_an_environment() {
    let world = World::new();
    world.add("x", &world.metadata());
    let catalog = Catalog::load(world.sources());
    assert_eq!(catalog.skipped(), []);
    assert_eq!(catalog.names().collect::<Vec<_>>(), ["shell", "python", "node", "tools"]);
    let tools = catalog.get("tools").expect("tools");
    assert_eq!(tools.program, PathBuf::from(store_path("env/bin/bash")));
    assert_eq!(tools.path, [PathBuf::from(store_path("env/bin"))]);
    assert_eq!(tools.limits.time, Some(5.0));
    assert_eq!(tools.limits.memory, Some(64 << 20));
    let shown = tools.mounts.iter().map(|mount| {
        let to = match &mount.kind {
            MountKind::Bind { source: HostFile { path, directory, .. } } => {
                (path.clone(), if *directory { "directory" } else { "file" })
            }
            MountKind::Symlink { target } => (target.clone(), "link"),
            other => panic!("{other:?}"),
        };
        (mount.at.clone(), to)
    });
    let bound = |name: &str, kind| (store_path(name).into(), (world.in_store(name), kind));
    let link = |at: String, to: &str| (at.into(), (store_path(to).into(), "link"));
    let expected: [(PathBuf, (PathBuf, &str)); 7] = [
        bound("env", "directory"),
        bound("bash", "directory"),
        bound("coreutils", "directory"),
        bound("a-file", "file"),
        link(store_path("a-link"), "a-file"),
        link("/bin/sh".to_owned(), "env/bin/sh"),
        link("/usr/bin/env".to_owned(), "env/bin/env"),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn limits_win_over_the_predecessor_s_names_and_custom_names_over_presets() {
    let world = World::new();
    let mut metadata = world.metadata();
    metadata["name"] = json!("shell");
    metadata["limits"] = json!({"memory": "128M", "pids": 7});
    world.add("x", &metadata);
    metadata["description"] = json!("second");
    let second = world.artifacts().join("y");
    world.add("y", &metadata);
    let catalog = Catalog::load(world.sources());
    let shell = catalog.get("shell").expect("shell");
    assert_eq!(shell.origin, Origin::Artifact { path: world.artifacts().join("x") });
    assert_eq!(shell.limits.memory, Some(128 << 20));
    assert_eq!((shell.limits.pids, shell.limits.time), (Some(7), Some(5.0)));
    assert_eq!(catalog.names().collect::<Vec<_>>(), ["shell", "python", "node"]);
    let reason = format!(
        "{}: the name \"shell\" is taken by {}",
        second.display(),
        world.artifacts().join("x").display()
    );
    assert_eq!(catalog.skipped(), [Skipped { path: second, reason }]);
}

#[test]
fn links_to_artifacts_are_followed_also_into_a_chroot_store() {
    let world = World::new();
    let built = world.in_store("artifact");
    fs::create_dir(&built).expect("mkdir");
    fs::write(built.join("metadata.json"), world.metadata().to_string()).expect("write");
    symlink(store_path("artifact"), world.artifacts().join("result")).expect("link");
    let sources = Sources { store_root: Some(world.root.clone()), ..world.sources() };
    let tools = Catalog::load(sources).get("tools").expect("tools");
    assert_eq!(tools.origin, Origin::Artifact { path: built });
}

#[test]
fn wrong_values_are_refused_by_name() {
    let world = World::new();
    let name = "is no name; it has 1 to 64 letters, digits, `_`, `.` or `-`";
    for bad in ["../x", "", ".", "a b", "a\nb"] {
        world.refused(|m| m["name"] = json!(bad), &format!("{bad:?} {name}"));
    }
    world.refused(|m| m["version"] = json!(2), "version 2 is not known; this program reads 1");
    let memory = "limit `memory` is 0; it must be between 4M and 1024G";
    world.refused(|m| m["memory_mb"] = json!(0), memory);
    let time = "limit `time` is 0; it must be above 0 s and at most 7 days";
    world.refused(|m| m["timeout_seconds"] = json!(0), time);
    world.refused(
        |m| m["variables"] = json!({"A=B": ""}),
        "\"A=B\" cannot be an environment variable",
    );
    let store = "/etc cannot be a store: the sandbox has something else at /etc";
    world.refused(|m| m["store_dir"] = json!("/etc"), store);
}

#[test]
fn what_is_no_metadata_is_skipped() {
    let world = World::new();
    let file = world.write("x", "{\"name\": 7}");
    let says = "invalid type: integer `7`, expected a string at line 1 column 10";
    world.skipped(&format!("{}: {says}", file.display()));
    world.write("x", "[\"tools\", \"bash\"]");
    world.skipped(&format!("{}: it is no JSON object", file.display()));
    // Deep, whole and in a field that is not known.
    let deep = format!("{{\"later\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    world.write("x", &deep);
    world.skipped(&format!("{}: recursion limit exceeded at line 1 column 137", file.display()));
    world.write("x", &" ".repeat((1 << 20) + 1));
    world.skipped(&format!("{} is larger than 1048576 bytes", file.display()));
    fs::remove_file(&file).expect("unlink");
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).expect("mkfifo");
    world.skipped(&format!("{} is a FIFO, not a regular file", file.display()));
    fs::remove_file(&file).expect("unlink");
    symlink("/etc/passwd", &file).expect("link");
    world.skipped(&format!("{} is a symbolic link, not a regular file", file.display()));
    fs::remove_file(&file).expect("unlink");
    world.skipped(&format!("{}: No such file or directory", file.display()));
}

#[test]
fn what_is_no_artifact_is_skipped() {
    let world = World::new();
    let entry = world.artifacts().join("x");
    symlink("/", &entry).expect("link");
    world.skipped(&format!("{} leads to /, which is no artifact", entry.display()));
    fs::remove_file(&entry).expect("unlink");
    symlink("nowhere", &entry).expect("link");
    world.skipped(&format!("{}: No such file or directory", entry.display()));
    fs::remove_file(&entry).expect("unlink");
    fs::write(&entry, "").expect("write");
    world.skipped(&format!("{} is a regular file, not a directory", entry.display()));
    fs::rename(&entry, world.artifacts().join(".hidden")).expect("rename");
    assert_eq!(Catalog::load(world.sources()).skipped(), []);
}

#[test]
fn what_others_can_change_is_skipped() {
    let world = World::new();
    let file = world.add("x", &world.metadata());
    let dir = world.artifacts().join("x");
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    let says = |path: &Path, mode: &str| {
        format!("{} can be changed by everybody (mode {mode}); chmod o-w", path.display())
    };
    chmod(&file, 0o666);
    world.skipped(&says(&file, "666"));
    chmod(&file, 0o644);
    chmod(&dir, 0o777);
    world.skipped(&says(&dir, "777"));
    chmod(&dir, 0o755);
    chmod(&world.artifacts(), 0o1777);
    world.skipped(&says(&world.artifacts(), "1777"));
    chmod(&world.artifacts(), 0o755);
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(4242), None).expect("chown");
        world.skipped(&format!(
            "{} belongs to uid 4242, neither to root nor to uid 0, who runs this program",
            file.display()
        ));
    }
}

#[test]
fn a_closure_is_held_against_the_store() {
    let world = World::new();
    let push = |path: String| {
        move |m: &mut Value| m["closure"].as_array_mut().expect("list").push(json!(path))
    };
    let gone = world.in_store("gone");
    let says = format!(": {}: garbage collected; rebuild it", gone.display());
    world.unusable(push(store_path("gone")), &says);
    let says = ": \"/etc\" is no path of the store /nix/store";
    world.unusable(push("/etc".to_owned()), says);
    let says = format!(": {} stands in the closure twice", store_path("bash"));
    world.unusable(push(store_path("bash")), &says);
    let says = format!(": `env` {} is not in the closure", store_path("other"));
    world.unusable(|m| m["env"] = json!(store_path("other")), &says);
    let says = format!(": there is no program {}", store_path("env/bin/node"));
    world.unusable(|m| m["interpreter_type"] = json!("node"), &says);
    // A link that leaves the closure leads nowhere in the sandbox.
    let says = format!(": there is no program {}", store_path("env/bin/bash"));
    world.unusable(|m| m["closure"] = json!([store_path("env"), store_path("coreutils")]), &says);
}

#[test]
fn without_a_closure_nix_store_is_asked() {
    let world = World::new();
    let bin = world.root.join("bin");
    fs::create_dir(&bin).expect("mkdir");
    let mut metadata = world.metadata();
    metadata.as_object_mut().expect("object").remove("closure");
    let file = world.add("x", &metadata);
    let tool = bin.join("nix-store");
    let answer = |text: &str| {
        fs::write(&tool, format!("#!/bin/sh\n{text}\n")).expect("write");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("chmod");
        let sources = Sources { path: Some(bin.clone().into()), ..world.sources() };
        Catalog::load(sources).get("tools").map(|_| ()).map_err(|error| error.to_string())
    };
    let paths = ["env", "bash", "coreutils"].map(store_path).join("\n");
    let asked = world.root.join("asked");
    let script = format!("echo \"$@\" > {}; cat <<END\n{paths}\nEND", asked.display());
    assert_eq!(answer(&script), Ok(()));
    let dir = world.artifacts().join("x");
    let expected = format!("--store {} -qR {}\n", world.root.display(), dir.display());
    assert_eq!(fs::read_to_string(asked).expect("asked"), expected);
    let failed = answer("echo \"error: no such path\" >&2; exit 1");
    let says = format!(
        "the environment \"tools\" cannot be used: {} has no `closure`, and `nix-store -qR` could \
         not name it: `{} --store {} -qR {}` failed with exit status: 1: error: no such path; \
         rebuild it",
        file.display(),
        tool.display(),
        world.root.display(),
        dir.display()
    );
    assert_eq!(failed, Err(says));
}

/// A store that lies where the sandbox sees it too, with jails beside its environment.
fn with_jails() -> (World, Value) {
    let keep = tempfile::Builder::new().tempdir_in("/var/tmp").expect("tempdir");
    let root = fs::canonicalize(keep.path()).expect("canonical");
    let world = World { _keep: keep, root };
    let store = world.root.join("store");
    let path = |name: &str| store.join(format!("{HASH}-{name}"));
    for program in ["env/bin/bash", "jail/bin/run", "jail/bin/session"] {
        let program = path(program);
        fs::create_dir_all(program.parent().expect("parent")).expect("mkdir");
        fs::write(&program, "").expect("write");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let bin = world.artifacts().join("x/bin");
    fs::create_dir_all(&bin).expect("mkdir");
    symlink(path("jail/bin/run"), bin.join("run")).expect("link");
    symlink(path("jail/bin/session"), bin.join("session-run")).expect("link");
    let metadata = json!({
        "name": "tools", "interpreter_type": "bash", "jail": 1, "env": path("env"),
        "closure": [path("env")], "store_dir": store,
    });
    (world, metadata)
}

fn jails(world: &World, metadata: &Value) -> Option<Jails> {
    world.add("x", metadata);
    let catalog = Catalog::load(world.sources());
    catalog.get("tools").expect("tools").jails.clone()
}

#[test]
fn an_environment_has_the_jails_that_lie_beside_it() {
    let (world, metadata) = with_jails();
    let jails = jails(&world, &metadata).expect("jails");
    let store = world.root.join("store");
    let program = |name: &str| store.join(format!("{HASH}-jail/bin/{name}"));
    assert_eq!(jails.run.program.path, program("run"));
    assert_eq!(jails.session.program.path, program("session"));
    assert_eq!((&jails.run.store, &jails.session.store), (&store, &store));
}

#[test]
fn a_jail_that_is_unknown_elsewhere_or_another_s_is_left_alone() {
    let (world, metadata) = with_jails();
    for version in [Value::Null, json!(2)] {
        let mut metadata = metadata.clone();
        metadata["jail"] = version;
        assert_eq!(jails(&world, &metadata), None, "of no agreement that is known");
    }
    let run = world.artifacts().join("x/bin/run");
    let program = fs::canonicalize(&run).expect("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).expect("chmod");
    assert_eq!(jails(&world, &metadata), None, "everybody can change it");
    fs::remove_file(&run).expect("remove");
    assert_eq!(jails(&world, &metadata), None, "it is not there");
    symlink("/bin/sh", &run).expect("link");
    assert_eq!(jails(&world, &metadata), None, "it is not in the store");
}

#[test]
fn a_chroot_store_s_jails_would_show_the_host_s() {
    let (world, mut metadata) = with_jails();
    let chroot = world.root.join("chroot");
    let env = format!("store/{HASH}-env/bin/bash");
    let program = links::below(&chroot)(&world.root.join(&env));
    fs::create_dir_all(program.parent().expect("parent")).expect("mkdir");
    fs::copy(world.root.join(&env), &program).expect("copy");
    metadata["store_root"] = json!(chroot);
    assert_eq!(jails(&world, &metadata), None);
    metadata["store_root"] = json!("/");
    assert!(jails(&world, &metadata).is_some());
}
