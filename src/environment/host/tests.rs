use super::super::preset;
use super::*;
use crate::plan::{Access, Command, HostFile, Identity, Ids, Limits, PlanBuilder, ProcMode};
use crate::policy::Profile;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

/// Not in `/tmp`: what lies there cannot be shown.
fn scratch() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/var/tmp").expect("tempdir");
    let path = fs::canonicalize(dir.path()).expect("canonical");
    (dir, path)
}

fn dirs(root: &Path, names: &[&str]) {
    for name in names {
        fs::create_dir_all(root.join(name)).expect(name);
    }
}

/// A real program under another name.
fn program(at: &Path) {
    fs::create_dir_all(at.parent().expect("parent")).expect("mkdir");
    fs::copy("/bin/true", at).expect("copy");
}

fn script(at: &Path, text: &str) {
    fs::create_dir_all(at.parent().expect("parent")).expect("mkdir");
    fs::write(at, text).expect("write");
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("chmod");
}

fn python() -> Preset {
    preset::bundled("python").expect("bundled").expect("whole")
}

fn with_path(dirs: &[&Path]) -> Sources {
    let path = std::env::join_paths(dirs).expect("PATH");
    Sources { path: Some(path), ..Sources::default() }
}

/// What is shown besides the distribution's own trees: place, and link target or host path.
fn shown(mounts: &[Mount]) -> Vec<(String, String)> {
    let own = |mount: &&Mount| {
        let top = place::TOP.iter().any(|name| mount.at == Path::new("/").join(name));
        !top && mount.at != Path::new("/usr") && !mount.at.starts_with("/etc")
    };
    let mut all: Vec<_> = mounts.iter().filter(own).map(pair).collect();
    all.sort();
    all
}

fn pair(mount: &Mount) -> (String, String) {
    let to = match &mount.kind {
        MountKind::Bind { source: HostFile { path, .. } } => path.display().to_string(),
        MountKind::Symlink { target } => format!("-> {}", target.display()),
        other => format!("{other:?}"),
    };
    (mount.at.display().to_string(), to)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_merged_usr_is_one_bind_and_its_links() {
    let (_keep, root) = scratch();
    dirs(&root, &["usr/bin", "usr/lib", "etc/alternatives", "home/ann", "root"]);
    script(&root.join("usr/bin/sh"), "");
    script(&root.join("etc/ld.so.cache"), "");
    script(&root.join("etc/shadow"), "");
    symlink("usr/bin", root.join("bin")).expect("link");
    symlink("usr/lib", root.join("lib")).expect("link");
    let tree = Tree::system(&root);
    let host = |name: &str| text(&root.join(name));
    let expected = [
        ("/usr", host("usr")),
        ("/bin", "-> usr/bin".to_owned()),
        ("/lib", "-> usr/lib".to_owned()),
        ("/etc/alternatives", host("etc/alternatives")),
        ("/etc/ld.so.cache", host("etc/ld.so.cache")),
    ];
    let expected = expected.map(|(at, to)| (at.to_owned(), to));
    assert_eq!(tree.mounts.iter().map(pair).collect::<Vec<_>>(), expected);
}

#[test]
fn a_split_usr_is_several_binds() {
    let (_keep, root) = scratch();
    dirs(&root, &["usr", "bin", "sbin", "lib"]);
    script(&root.join("bin/busybox"), "");
    symlink("/bin/busybox", root.join("bin/sh")).expect("link");
    let tree = Tree::system(&root);
    let at: Vec<_> = tree.mounts.iter().map(|mount| text(&mount.at)).collect();
    assert_eq!(at, ["/usr", "/bin", "/sbin", "/lib"]);
    assert!(tree.mounts.iter().all(|mount| matches!(mount.kind, MountKind::Bind { .. })));
}

#[test]
fn where_programs_do_not_live_in_usr_nothing_of_it_is_shown() {
    let (_keep, root) = scratch();
    dirs(&root, &["usr/bin", "bin", "nix/store/x/bin"]);
    script(&root.join("nix/store/x/bin/sh"), "");
    symlink("/nix/store/x/bin/sh", root.join("bin/sh")).expect("link");
    assert_eq!(Tree::system(&root).mounts, []);
}

#[test]
fn an_interpreter_of_its_own_prefix_brings_that_prefix_alone() {
    let (_keep, root) = scratch();
    let prefix = root.join("home/.pyenv/versions/3.11.7");
    program(&prefix.join("bin/python3.11"));
    symlink("python3.11", prefix.join("bin/python3")).expect("link");
    let shim = root.join("shims/python3");
    script(&shim, &format!("#!/bin/sh\necho chat\necho {}/bin/python3\n", prefix.display()));
    let sources = Sources { home: Some(root.join("home")), ..with_path(&[&root.join("shims")]) };
    let environment = attempt(&shim, &python(), &sources).expect("python");
    assert_eq!(environment.program, prefix.join("bin/python3.11"));
    assert_eq!(environment.path[0], prefix.join("bin"));
    assert_eq!(environment.path.last(), Some(&PathBuf::from("/bin")));
    assert_eq!(shown(&environment.mounts), [(text(&prefix), text(&prefix))]);
}

#[test]
fn a_shim_sees_path_and_home_and_nothing_else() {
    let (_keep, root) = scratch();
    let shim = root.join("shims/python3");
    program(&root.join("p/bin/python3"));
    let env =
        format!("env | cut -d= -f1 | grep -v -e ^PWD$ -e ^SHLVL$ -e ^_$ > {}/seen", text(&root));
    script(&shim, &format!("#!/bin/sh\n{env}\necho {}/p/bin/python3\n", root.display()));
    let sources = Sources { home: Some(root.clone()), ..with_path(&[&root.join("shims")]) };
    attempt(&shim, &python(), &sources).expect("python");
    let seen = fs::read_to_string(root.join("seen")).expect("seen");
    let mut seen: Vec<_> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["HOME", "LC_ALL", "PATH"]);
}

#[test]
fn a_broken_shim_gives_way_to_the_next_program() {
    let (_keep, root) = scratch();
    let shim = root.join("a/python3");
    script(&shim, "#!/bin/sh\necho no version is set >&2\nexit 127\n");
    program(&root.join("b/bin/python3"));
    let sources = with_path(&[&root.join("a"), &root.join("b/bin")]);
    let environment = resolve(&python(), &sources).expect("the next");
    assert_eq!(environment.program, root.join("b/bin/python3"));
    let error = attempt(&shim, &python(), &sources).expect_err("broken").to_string();
    assert_eq!(environment.passed_over, [error.as_str()]);
    let says = format!(
        "{0} does not say which program it stands for: `{0} -I -c import \
         sys;print(sys.executable)` failed with exit status: 127: no version is set",
        shim.display()
    );
    assert_eq!(error, says);
}

#[test]
fn a_program_of_another_name_is_a_shim_too() {
    let (_keep, root) = scratch();
    program(&root.join("bin/volta-shim"));
    symlink("volta-shim", root.join("bin/python3")).expect("link");
    let shim = root.join("bin/python3");
    let error = attempt(&shim, &python(), &with_path(&[])).expect_err("true prints nothing");
    let says =
        format!("{} does not say which program it stands for: it printed no path", shim.display());
    assert_eq!(error.to_string(), says);
}

#[test]
fn a_virtual_environment_is_shown_with_its_base_and_the_links_between() {
    let (_keep, root) = scratch();
    let (base, venv) = (root.join("uv/cpython-3.12.1"), root.join("work/.venv"));
    program(&base.join("bin/python3.12"));
    symlink("cpython-3.12.1", root.join("uv/cpython-3.12")).expect("link");
    dirs(&venv, &["bin"]);
    let minor = root.join("uv/cpython-3.12");
    symlink(minor.join("bin/python3.12"), venv.join("bin/python")).expect("link");
    symlink("python", venv.join("bin/python3")).expect("link");
    let current = root.join("uv/current");
    symlink(&base, &current).expect("link");
    fs::write(venv.join("pyvenv.cfg"), format!("home = {}/bin\n", current.display())).expect("cfg");
    let environment =
        attempt(&venv.join("bin/python3"), &python(), &with_path(&[])).expect("python");
    assert_eq!(environment.program, venv.join("bin/python3"));
    assert_eq!(environment.path[0], venv.join("bin"));
    let expected = [
        (text(&minor), "-> cpython-3.12.1".to_owned()),
        (text(&base), text(&base)),
        (text(&current), format!("-> {}", text(&base))),
        (text(&venv), text(&venv)),
    ];
    assert_eq!(shown(&environment.mounts), expected);
}

#[test]
fn a_home_is_never_a_prefix() {
    let (_keep, home) = scratch();
    program(&home.join("bin/python3"));
    dirs(&home, &["lib/python3.11", "lib/secret", ".ssh"]);
    let candidate = home.join("bin/python3");
    let sources = Sources { home: Some(home.clone()), ..with_path(&[]) };
    let environment = attempt(&candidate, &python(), &sources).expect("python");
    let own = |name: &str| (text(&home.join(name)), text(&home.join(name)));
    assert_eq!(shown(&environment.mounts), [own("bin/python3"), own("lib/python3.11")]);
}

#[test]
fn only_a_directory_of_one_thing_is_a_prefix() {
    let home = Some(Path::new("/srv/ann"));
    let prefix = |program: &str| own_prefix(Path::new(program), home).map(text);
    for program in [
        "/bin/python3",
        "/opt/bin/python3",
        "/srv/bin/python3",
        "/srv/ann/bin/python3",
        "/srv/ann/.local/bin/python3",
        "/root/bin/python3",
        "/home/bin/python3",
        "/home/bob/bin/python3",
        "/opt/python/python3",
    ] {
        assert_eq!(prefix(program), None, "{program}");
    }
    for (program, expected) in [
        ("/opt/python/bin/python3", "/opt/python"),
        ("/srv/ann/.pyenv/versions/3/bin/python3", "/srv/ann/.pyenv/versions/3"),
        ("/root/.pyenv/versions/3.11.7/bin/python3", "/root/.pyenv/versions/3.11.7"),
    ] {
        assert_eq!(prefix(program).as_deref(), Some(expected));
    }
}

#[test]
fn the_project_and_relative_directories_supply_no_interpreter() {
    let (_keep, root) = scratch();
    let project = root.join("project");
    program(&project.join("bin/python3"));
    dirs(&root, &["outside"]);
    symlink(project.join("bin/python3"), root.join("outside/python3")).expect("link");
    let directories = [&project.join("bin"), Path::new("bin"), &root.join("outside")];
    let sources = Sources { project: Some(project.clone()), ..with_path(&directories) };
    let search: Vec<_> = sources.search().take(2).collect();
    assert_eq!(search, [root.join("outside"), PathBuf::from("/usr/local/bin")]);
    let error = attempt(&root.join("outside/python3"), &python(), &sources).expect_err("project");
    let says = format!(
        "{} lies in the project, which must not supply the interpreter",
        project.join("bin/python3").display()
    );
    assert_eq!(error.to_string(), says);
}

/// Whichever way it would fail later, it is told as what it is, and never executed.
#[test]
fn what_the_project_would_supply_is_told_of_and_not_looked_at() {
    let (_keep, root) = scratch();
    let project = root.join("project");
    let ran = root.join("ran");
    let shim = project.join(".venv/bin/python3");
    script(&shim, &format!("#!/bin/sh\n: > {}\n", ran.display()));
    program(&root.join("b/bin/python3"));
    let bin = project.join(".venv/bin");
    let directories = [bin.as_path(), &root.join("b/bin"), &bin];
    let sources = Sources { project: Some(project.clone()), ..with_path(&directories) };
    let environment = resolve(&python(), &sources).expect("the next");
    assert_eq!(environment.program, root.join("b/bin/python3"));
    let says =
        format!("{} lies in the project, which must not supply the interpreter", shim.display());
    assert_eq!(environment.passed_over, [says.as_str()]);
    // Neither by a way around.
    symlink(&project, root.join("link")).expect("link");
    let around = root.join("link/.venv/bin");
    let directories = [around.as_path(), &root.join("b/bin")];
    let sources = Sources { project: Some(project), ..with_path(&directories) };
    let environment = resolve(&python(), &sources).expect("the next");
    assert_eq!(environment.passed_over, [says.as_str()]);
    assert!(!ran.exists());
}

#[test]
fn what_lies_where_the_sandbox_has_something_else_is_told() {
    let dir = tempfile::tempdir_in("/tmp").expect("tempdir");
    let prefix = fs::canonicalize(dir.path()).expect("canonical").join("p");
    program(&prefix.join("bin/python3"));
    let error = attempt(&prefix.join("bin/python3"), &python(), &with_path(&[])).expect_err("/tmp");
    let says = format!("{} lies at /tmp, which a sandbox makes itself", prefix.display());
    assert_eq!(error.to_string(), says);
}

#[test]
fn a_missing_program_is_told_with_what_helps() {
    let mut preset = python();
    preset.host.interpreter = "no-such-program".to_owned();
    let error = resolve(&preset, &Sources::default()).expect_err("missing").to_string();
    let says = "there is no `no-such-program` in /bin:/usr/bin:/usr/local/bin; install it, or \
                build the environment with Nix";
    assert_eq!(error, says);
}

#[test]
fn ldd_is_read_in_the_forms_of_glibc_and_musl() {
    let glibc = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /opt/z y/libz.so.1 (0x00007f)\n\
                 \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
    let paths = ["/opt/z y/libz.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
    assert_eq!(library_paths(glibc), paths);
    assert_eq!(library_paths("\tstatically linked\n"), Vec::<PathBuf>::new());
}

/// Whatever this machine has: what comes out is a plan, and shows nobody's home.
#[test]
fn what_this_host_has_makes_a_plan() {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let sources = Sources { home, path: std::env::var_os("PATH"), ..Sources::default() };
    for name in preset::names() {
        let preset = preset::bundled(name).expect("bundled").expect("whole");
        let environment = match resolve(&preset, &sources) {
            Ok(environment) => environment,
            Err(error) if name != "shell" => {
                eprintln!("{name}: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        eprintln!("{name}: {:?} {:?}", environment.program, shown(&environment.mounts));
        for mount in &environment.mounts {
            assert!(!place::is_or_holds_home(&mount.at, sources.home.as_deref()), "{mount:?}");
        }
        plan(environment).build().expect(name);
    }
}

fn plan(environment: Environment) -> PlanBuilder {
    PlanBuilder {
        environment: environment.name,
        identity: Identity::of(Ids { uid: 1000, gid: 1000 }),
        mounts: environment.mounts,
        limits: Limits::default(),
        access: Access {
            profile: Profile::Default,
            wearer: environment.interpreter.wearer(),
            proc: ProcMode::Fresh,
            require: Default::default(),
        },
        command: Command {
            arguments: vec![environment.program.into_os_string()],
            variables: BTreeMap::new(),
            directory: PathBuf::from("/workspace"),
            jail: None,
        },
    }
}
