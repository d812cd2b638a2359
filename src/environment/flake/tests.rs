use std::os::unix::process::ExitStatusExt;

use super::*;

#[test]
fn a_reference_gives_its_environment_a_name() {
    for (reference, name) in [
        ("github:me/envs#data-science", "data-science"),
        (" path:/home/me/envs#packages.x86_64-linux.tools ", "tools"),
        ("git+https://example.org/envs.git?ref=main#a^out", "a"),
        ("github:me/envs", "envs"),
        ("path:/home/me/envs/", "envs"),
        ("nixpkgs#hello", "hello"),
    ] {
        assert_eq!(reference.parse::<Flake>().expect(reference).name(), name, "{reference}");
    }
    for reference in ["", " ", "--impure", "a b#c", "path:/x#a\nb", "path:/x#a.\u{e9}", "github:"] {
        reference.parse::<Flake>().expect_err(reference);
    }
}

#[test]
fn two_references_of_one_name_have_two_roots() {
    let place = |reference: &str| {
        let flake: Flake = reference.parse().expect(reference);
        flake.place(Path::new("/roots"), ".lock")
    };
    let (first, second) = (place("github:me/a#x"), place("github:me/b#x"));
    assert_ne!(first, second);
    assert!(first.to_string_lossy().starts_with("/roots/x-"), "{first:?}");
    assert!(first.to_string_lossy().ends_with(".lock"), "{first:?}");
}

#[test]
fn of_what_nix_says_the_end_is_kept() {
    assert_eq!(newest_line(b"one\ntwo\n\n"), "two");
    assert_eq!(newest_line(b""), "");
    let many: Vec<u8> = (0..99).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let kept = last_lines(&many);
    assert!(kept.starts_with("line 87\n") && kept.ends_with("\nline 98"), "{kept}");
    let status = std::process::ExitStatus::from_raw(1 << 8);
    assert_eq!(after("", status), " with exit status: 1");
    assert_eq!(after("x", status), ": x\nexit status: 1; its last lines:\nx");
    let said = "building\nerror: no such attribute\n  at line 3";
    let first = after(said, status).lines().next().map(str::to_owned);
    assert_eq!(first.as_deref(), Some(": error: no such attribute"));
}

#[test]
fn without_a_state_directory_a_build_fails_in_a_sentence() {
    let build = Build::new("path:/x#a".parse().expect("flake")).expect("build");
    let sources = Sources::default();
    assert!(matches!(build.state(&sources), State::Waiting));
    let State::Failed(why) = build.wait(&sources, None, &|_| {}).expect("waited") else {
        panic!("failed")
    };
    assert_eq!(why, "there is no place for what is built: set HOME or XDG_STATE_HOME");
    assert!(matches!(build.state(&sources), State::Failed(_)));
}
