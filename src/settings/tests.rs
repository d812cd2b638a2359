use super::*;
use nix::sys::stat::Mode;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tempfile::TempDir;

fn load(variables: &[(&str, &OsStr)]) -> Result<Settings, String> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.to_os_string())
    };
    let euid = nix::unistd::geteuid().as_raw();
    Settings::load(&lookup, euid).map_err(|error| error.to_string())
}

fn one(name: &str, value: impl AsRef<OsStr>) -> Result<Settings, String> {
    load(&[(name, value.as_ref())])
}

fn refused(name: &str, value: impl AsRef<OsStr>, says: &str) {
    assert_eq!(one(name, &value).map(|_| ()), Err(says.to_owned()), "{:?}", value.as_ref());
}

fn scratch() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = fs::canonicalize(dir.path()).expect("canonical");
    (dir, path)
}

#[test]
fn without_anything_the_defaults_hold() {
    let settings = load(&[]).expect("defaults");
    assert_eq!(settings.project, None);
    assert_eq!(settings.project_mount, Path::new("/project"));
    assert_eq!(settings.sources.artifacts, None);
    assert_eq!(settings.log, Log { level: LevelFilter::WARN, json: false });
    assert_eq!((settings.max_runs, settings.backend), (8, Backend::Engine));
    let (_keep, home) = scratch();
    let settings = one("HOME", &home).expect("home");
    assert_eq!(settings.sources.artifacts, Some(home.join(DEFAULT_DIR)));
}

/// MNT-19.
#[test]
fn a_project_stands_only_where_the_sandbox_has_nothing() {
    let plain = "must be an absolute path without `.`, `..`, `//`, a `/` at its end or a NUL byte, \
                 shorter than 4096 bytes";
    for (value, shown) in [
        ("..", ".."),
        ("project", "project"),
        ("/a/../proc", "/a/../proc"),
        ("/project\0x", "\"/project\\0x\""),
        ("", "\"\""),
        ("//", "//"),
        ("/project/../../etc", "/project/../../etc"),
        ("/project/", "/project/"),
    ] {
        refused(PROJECT_MOUNT, value, &format!("PROJECT_MOUNT={shown} {plain}"));
    }
    let long = format!("/{}", "x".repeat(4096));
    let says = format!("PROJECT_MOUNT={}… (4097 bytes) {plain}", &long[..120]);
    refused(PROJECT_MOUNT, long, &says);
    let says = "PROJECT_MOUNT=/ cannot be the root; use a directory such as /project";
    refused(PROJECT_MOUNT, "/", says);
    for (value, place) in [
        ("/proc", "/proc"),
        ("/proc/self", "/proc"),
        ("/dev", "/dev"),
        ("/sys", "/sys"),
        ("/etc", "/etc"),
        ("/etc/project", "/etc"),
        ("/nix", "/nix"),
        ("/nix/store", "/nix"),
        ("/workspace", "/workspace"),
        ("/workspace/project", "/workspace"),
        ("/tmp", "/tmp"),
        ("/code", "/code"),
        ("/agent", "/agent"),
        ("/outputs", "/outputs"),
        ("/usr/src", "/usr"),
        ("/bin", "/bin"),
        ("/lib64/x", "/lib64"),
    ] {
        let says = format!(
            "PROJECT_MOUNT={value} cannot be used: the sandbox has its own {place}; use, say, \
             /project"
        );
        refused(PROJECT_MOUNT, value, &says);
    }
    for value in ["/root", "/home", "/home/ann"] {
        let says = format!(
            "PROJECT_MOUNT={value} cannot be used: interpreters can lie below it; use, say, \
             /project"
        );
        refused(PROJECT_MOUNT, value, &says);
    }
    for value in ["/project", "/srv/a b", "/home/ann/work", "/..x"] {
        let settings = one(PROJECT_MOUNT, value).expect(value);
        assert_eq!(settings.project_mount, Path::new(value));
    }
}

/// MNT-20.
#[test]
fn too_much_of_a_host_is_no_project() {
    for (value, leads) in [
        ("/", "is /"),
        ("/proc", "is /proc"),
        ("/proc/sys/kernel", "lies below /proc"),
        ("/sys", "is /sys"),
        ("/dev", "is /dev"),
        ("/run", "is /run"),
        ("/etc", "is /etc"),
        ("/usr/..", "is /"),
    ] {
        let says = format!("PROJECT_DIR={value} {leads}, which no sandbox may see; name a project");
        refused(PROJECT_DIR, value, &says);
    }
    assert_eq!(
        exposure(Path::new("/nix"), None).as_deref(),
        Some("is /nix, which no sandbox may see; name a project")
    );
    assert_eq!(exposure(Path::new("/nix/store/x"), None), None);
}

#[test]
fn a_home_is_no_project() {
    let (_keep, root) = scratch();
    let (home, work) = (root.join("ann"), root.join("ann/work"));
    fs::create_dir_all(&work).expect("mkdir");
    symlink(&home, root.join("link")).expect("link");
    let with = |project: &Path| {
        load(&[("HOME", home.as_os_str()), (PROJECT_DIR, project.as_os_str())]).map(|_| ())
    };
    let secret =
        "is or holds a home directory: a sandbox would see every secret in it; name a project";
    for path in [&home, &root, &root.join("link"), Path::new("/home")] {
        assert_eq!(with(path), Err(format!("PROJECT_DIR={} {secret}", path.display())));
    }
    assert_eq!(with(&work), Ok(()));
}

#[test]
fn what_is_no_directory_is_no_project() {
    let (_keep, root) = scratch();
    let at = |name: &str| root.join(name);
    fs::write(at("file"), "").expect("write");
    nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).expect("mkfifo");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bind");
    for (name, problem) in [
        ("file", "is a regular file, not a directory"),
        ("fifo", "is a FIFO, not a directory"),
        ("socket", "is a socket, not a directory"),
        ("missing", "does not exist"),
    ] {
        let path = at(name);
        refused(PROJECT_DIR, &path, &format!("PROJECT_DIR={} {problem}", path.display()));
    }
    refused(PROJECT_DIR, "work", "PROJECT_DIR=work must be an absolute path");
    refused(PROJECT_DIR, "", "PROJECT_DIR=\"\" is empty; unset it, or name a directory");
    if !nix::unistd::geteuid().is_root() {
        fs::create_dir(at("closed")).expect("mkdir");
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o111)).expect("chmod");
        let says =
            format!("PROJECT_DIR={} cannot be read: permission denied", at("closed").display());
        refused(PROJECT_DIR, at("closed"), &says);
    }
}

#[test]
fn odd_names_are_projects_like_any_other() {
    let (_keep, root) = scratch();
    let odd = ["a b", "new\nline", "co:lon", "back\\slash", "tab\t'\""].map(OsString::from);
    for name in odd.into_iter().chain([OsString::from_vec(b"\xff\xfe".to_vec())]) {
        let dir = root.join(&name);
        fs::create_dir(&dir).expect("mkdir");
        let project = one(PROJECT_DIR, &dir).expect("odd").project.expect("project");
        let about = fs::metadata(&dir).expect("stat");
        assert_eq!(project.source.path, dir);
        assert_eq!(project.source.identity.inode, about.ino());
        assert_eq!(project.owner, Ids { uid: about.uid(), gid: about.gid() });
    }
}

#[test]
fn a_project_is_followed_once() {
    let (_keep, root) = scratch();
    fs::create_dir(root.join("real")).expect("mkdir");
    symlink("real", root.join("link")).expect("link");
    let settings = one(PROJECT_DIR, root.join("link")).expect("link");
    assert_eq!(settings.sources.project, Some(root.join("real")));
}

/// CFG-07.
#[test]
fn bad_values_are_refused_with_name_and_value() {
    refused(
        BACKEND,
        "docker",
        "NIX_SANDBOX_BACKEND=docker is no backend; use engine, jail or auto",
    );
    refused(BACKEND, OsStr::from_bytes(b"\xff"), "NIX_SANDBOX_BACKEND=\"\\xFF\" is no text");
    for value in ["0", "-1", "1025", "NaN", "1e99", "", "8 "] {
        let shown = show(value.as_ref());
        let says = "must be a whole number from 1 to 1024";
        refused(MAX_RUNS, value, &format!("NIX_SANDBOX_MAX_RUNS={shown} {says}"));
    }
    let says = "NIX_SANDBOX_LOG=loud must be off, error, warn, info, debug or trace, or one of \
                them with `,json`";
    refused(LOG, "loud", says);
    refused(DIR, "sandboxes", "NIX_SANDBOX_DIR=sandboxes must be an absolute path");
    refused(DIR, "/no/such", "NIX_SANDBOX_DIR=/no/such does not exist");
    refused(DIR, "/etc/passwd", "NIX_SANDBOX_DIR=/etc/passwd is not a directory");
    refused(STORE_ROOT, "/no/such", "NIX_SANDBOX_STORE_ROOT=/no/such does not exist");
    refused(AUDIT, "audit,code", "NIX_SANDBOX_AUDIT=audit,code must be an absolute path");
    refused(AUDIT, "", "NIX_SANDBOX_AUDIT=\"\" must be an absolute path");
    refused(STRUCTURED, "yes", "NIX_SANDBOX_STRUCTURED=yes must be 0 or 1");
    for (value, file, code, output) in [
        ("/a", "/a", false, false),
        ("/a,code", "/a", true, false),
        ("/a,b,output,code", "/a,b", true, true),
    ] {
        let rules = audit::Rules { file: file.into(), code, output };
        assert_eq!(one(AUDIT, value).expect(value).audit, Some(rules));
    }
    let log = one(LOG, "debug,json").expect("log").log;
    assert_eq!(log, Log { level: LevelFilter::DEBUG, json: true });
}

#[test]
fn the_settings_file_is_read_and_held_against_what_can_be() {
    let (_keep, root) = scratch();
    let path = root.join("settings.toml");
    let with = |text: &str| {
        fs::write(&path, text).expect("write");
        load(&[(CONFIG, path.as_os_str()), ("TOKEN", OsStr::new("x")), ("HOME", OsStr::new("/"))])
    };
    let settings = with(
        "require = [\"landlock\", \"cgroup\"]\nprofile = \"strict\"\nproc = \"none\"\n\
         inherit_env = [\"TOKEN\", \"UNSET\"]\n[limits]\nmemory = \"1G\"\ncpu = 0.5\n",
    )
    .expect("settings");
    assert_eq!(settings.require, BTreeSet::from([Wall::Landlock, Wall::Cgroup]));
    assert_eq!((settings.profile, settings.proc), (Profile::Strict, ProcMode::None));
    assert_eq!(settings.inherited, BTreeMap::from([("TOKEN".into(), "x".into())]));
    assert_eq!((settings.limits.memory, settings.limits.cpu), (Some(1 << 30), Some(0.5)));
    for (text, says) in [
        ("[limits]\nmemory = 0", "limit `memory` is 0; it must be between 4M and 1024G"),
        ("[limits]\ntime = nan", "limit `time` is NaN; it must be above 0 s and at most 7 days"),
        (
            "\nprofile = \"lax\"",
            "line 2, `profile = \"lax\"`: unknown variant `lax`, expected one of `default`, \
             `strict`, `compat`",
        ),
        (
            "[limits]\nmem = 1",
            "line 2, `mem = 1`: unknown field `mem`, expected one of `memory`, `swap`, `pids`, \
             `cpu`, `workspace`, `files`, `output`, `time`",
        ),
        (
            "[limits]\nmemory = \"lots\"",
            "line 2, `memory = \"lots\"`: \"lots\" is no size; write bytes, or a number with K, M \
             or G, such as 512M",
        ),
        ("inherit_env = [\"A=B\"]", "`inherit_env`: \"A=B\" is no name of a variable"),
        ("inherit_env = [\"HOME\"]", "`inherit_env`: HOME is set by the sandbox itself"),
        ("inherit_env = [\"A\", \"LANG\"]", "`inherit_env`: LANG is set by the sandbox itself"),
    ] {
        let expected = format!("NIX_SANDBOX_CONFIG={} cannot be used: {says}", path.display());
        assert_eq!(with(text).map(|_| ()), Err(expected), "{text}");
    }
}

#[test]
fn a_settings_file_that_others_can_write_is_refused() {
    let (_keep, root) = scratch();
    let path = root.join("settings.toml");
    fs::write(&path, "").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("chmod");
    let says = format!(
        "NIX_SANDBOX_CONFIG={0} cannot be used: {0} can be changed by everybody (mode 666); chmod \
         o-w",
        path.display()
    );
    refused(CONFIG, &path, &says);
    refused(CONFIG, "settings.toml", "NIX_SANDBOX_CONFIG=settings.toml must be an absolute path");
}

#[test]
fn the_tables_name_every_setting_and_the_true_defaults() {
    let (markdown, help) = (markdown(), help());
    for setting in SETTINGS {
        assert!(markdown.contains(&format!("| `{}` |", setting.name)), "{}", setting.name);
        assert!(help.contains(&format!("  {} ", setting.name)), "{}", setting.name);
    }
    let written: String = SETTINGS
        .iter()
        .filter_map(|setting| setting.name.strip_prefix("limits.").zip(Some(setting.default)))
        .map(|(name, default)| match default.ends_with('M') {
            true => format!("{name} = {default:?}\n"),
            false => format!("{name} = {default}\n"),
        })
        .collect();
    let overrides: LimitOverrides = toml::from_str(&written).expect("toml");
    let mut limits = Limits { memory: 1 << 30, pids: 1, time_ms: 1, ..Limits::default() };
    overrides.apply(&mut limits).expect("in range");
    assert_eq!(limits, Limits::default());
}

#[test]
fn a_flag_is_the_same_setting_as_its_variable() {
    let flags = |name: &str| (name == MAX_RUNS).then(|| OsString::from("3"));
    let variables = |name: &str| (name == MAX_RUNS).then(|| OsString::from("5"));
    let lookup = |name: &str| flags(name).or_else(|| variables(name));
    assert_eq!(Settings::load(&lookup, 0).expect("settings").max_runs, 3);
}

#[test]
fn the_example_is_a_settings_file_with_the_default_limits() {
    let file: File = toml::from_str(include_str!("../../settings.example.toml")).expect("example");
    let mut limits = Limits { memory: 1 << 30, pids: 1, time_ms: 1, ..Limits::default() };
    file.limits.apply(&mut limits).expect("in range");
    assert_eq!(limits, Limits::default());
    assert_eq!((file.profile, file.proc), (Profile::Default, ProcMode::Fresh));
}
