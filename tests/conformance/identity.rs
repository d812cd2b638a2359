//! Who the payload is and what it was given.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::needs;
use crate::support::{Ran, directory, exec_with, in_shell, is_root, plain, program, sh};

fn status() -> Vec<(String, String)> {
    let ran = sh("cat /proc/self/status");
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    ran.stdout.lines().filter_map(line).collect()
}

#[test]
fn every_cap_line_is_0_no_new_privs_1_seccomp_2() {
    needs!(Userns);
    let status = status();
    let value = |name: &str| {
        let found = status.iter().find(|(key, _)| key == name);
        found.unwrap_or_else(|| panic!("{name}: {status:?}")).1.clone()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!((value("NoNewPrivs"), value("Seccomp")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn every_process_and_thread_inside_has_no_capability_and_wears_a_filter() {
    needs!(Userns);
    let ran = sh("sleep 5 & cat /proc/[0-9]*/task/*/status");
    let lines = |name: &str| -> Vec<&str> {
        ran.stdout.lines().filter(|line| line.starts_with(name)).collect()
    };
    assert!(lines("CapEff").len() >= 3, "{}", ran.stdout);
    assert!(lines("Cap").iter().all(|line| line.ends_with("0000000000000000")), "{}", ran.stdout);
    assert!(lines("Seccomp:").iter().all(|line| line.ends_with('2')), "{}", ran.stdout);
    assert!(lines("NoNewPrivs").iter().all(|line| line.ends_with('1')), "{}", ran.stdout);
}

/// The payload's, and its own over that as soon as the payload runs.
#[test]
fn pid_1_wears_two_filters() {
    needs!(Userns);
    let script = "for _ in $(seq 1000); do grep -q \"Seccomp_filters:.*2\" /proc/1/status && break; done; \
                  grep Seccomp_filters /proc/1/status";
    assert_eq!(sh(script).stdout, "Seccomp_filters:\t2\n");
}

#[test]
fn the_payload_is_uid_1000_with_a_name_and_a_home() {
    needs!(Userns);
    let ran = sh("id; pwd; echo $HOME $TMPDIR; umask; uname -n");
    assert_eq!(
        ran.stdout,
        "uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)\n\
         /workspace\n/workspace /workspace\n0022\nsandbox\n"
            .replace("groups=1000(sandbox)", groups(&ran))
    );
}

/// An ordinary user cannot drop the groups it has; they show as 65534.
fn groups(ran: &Ran) -> &'static str {
    if ran.stdout.contains(",65534(nogroup)") {
        assert!(!is_root(), "{}", ran.stdout);
        "groups=1000(sandbox),65534(nogroup)"
    } else {
        "groups=1000(sandbox)"
    }
}

#[test]
fn as_root_no_supplementary_group_so_a_root_root_0640_file_cannot_be_opened() {
    needs!(Userns, Root);
    let project = directory();
    let file = project.path().join("secret");
    fs::write(&file, "secret").expect("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("mode");
    let ran = exec_with(
        "shell",
        &[("PROJECT_DIR", project.path())],
        &[],
        &["sh", "-c", "grep Groups /proc/self/status; cat /project/secret"],
    );
    assert_eq!(ran.stdout.trim_end(), "Groups:", "{ran:?}");
    assert_eq!(ran.stderr, "cat: /project/secret: Permission denied\n");
}

#[test]
fn the_payload_never_runs_as_host_uid_0() {
    needs!(Userns);
    let ran = sh("cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups");
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    let (inside, outside) = (words[0], words[1]);
    assert_eq!((inside, words[2], words[6]), ("1000", "1", "deny"), "{words:?}");
    assert_ne!(outside, "0");
    let own = nix::unistd::geteuid();
    assert_eq!(outside, if own.is_root() { "64000".to_owned() } else { own.to_string() });
}

#[test]
fn proc_self_fd_holds_only_0_1_2_and_the_directory_s_own() {
    needs!(Userns);
    assert_eq!(sh("ls /proc/self/fd").stdout, "0\n1\n2\n3\n");
}

#[test]
fn descriptors_that_we_inherited_are_not_handed_on() {
    needs!(Userns);
    // Two descriptors above 2, one a host directory, left open by whoever started the program.
    let script = format!(
        "exec 7</ 9</etc; exec {} {}",
        program().display(),
        in_shell("ls /proc/self/fd; ls /proc/1/fd")
    );
    let output = plain(Command::new("sh")).arg("-c").arg(script).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n3\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/proc/1/fd") && said.contains("Permission denied"), "{said}");
}

#[test]
fn the_environment_is_exactly_the_documented_allow_list() {
    needs!(Userns);
    let variables = [
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD_X",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "BASH_ENV",
        "ENV",
        "PERL5OPT",
        "GIT_DIR",
        "HTTP_PROXY",
        "DISPLAY",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
        "NIX_PATH",
    ]
    .map(|name| (name, Path::new("secret-of-the-host")));
    // What the shell was given, not what it has made of that.
    let script = "tr '\\0' '\\n' </proc/$$/environ";
    let text = exec_with("shell", &variables, &[], &["sh", "-c", script]).stdout;
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["GIT_CONFIG_SYSTEM", "HOME", "LANG", "PATH", "TAR_OPTIONS", "TERM", "TMPDIR", "USER"]
    );
    assert!(!text.contains("secret-of-the-host"));
}

#[test]
fn pid_1_tells_nothing_of_who_started_it() {
    needs!(Userns);
    let project = directory();
    let marker = project.path().join("marker-of-the-host");
    fs::create_dir(&marker).expect("directory");
    let ran = exec_with(
        "shell",
        &[("PROJECT_DIR", &marker), ("SECRET", Path::new("marker-of-the-host"))],
        &["--project", &marker.to_string_lossy()],
        &["sh", "-c", "tr '\\0' ' ' </proc/1/cmdline; cat /proc/1/comm; cat /proc/1/environ"],
    );
    assert!(!ran.stdout.contains("marker"), "{}", ran.stdout);
    assert!(ran.stdout.trim().ends_with("init"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "cat: /proc/1/environ: Permission denied\n");
}

#[test]
fn no_namespace_is_the_host_s() {
    needs!(Userns);
    let ran = sh("for n in user pid net mnt ipc uts cgroup; do readlink /proc/self/ns/$n; done");
    let inside: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(inside.len(), 7, "{ran:?}");
    for name in ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup"] {
        let outside = fs::read_link(format!("/proc/self/ns/{name}")).expect("ns");
        assert!(!inside.contains(&&*outside.to_string_lossy()), "{name} is shared");
    }
}

#[test]
fn inherited_values_are_fixed() {
    needs!(Userns);
    let script = format!(
        "umask 077; trap '' PIPE INT; ulimit -n 64; exec {} {}",
        program().display(),
        in_shell(
            "umask; ulimit -c; ulimit -n; grep -E \"Sig(Blk|Ign)\" /proc/self/status; yes | head -1"
        )
    );
    let output = plain(Command::new("sh")).arg("-c").arg(script).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Of open files half of what this program has.
    let expected = "0022\n0\n32\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\ny\n";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
