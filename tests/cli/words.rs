//! `envs` and `plan`.

use nix_sandbox::plan::Plan;
use serde_json::Value;

use crate::harness::{code, output, stdout};

#[test]
fn envs_lists_the_environments_in_a_stable_order() {
    let json = output(&["envs", "--json"]);
    assert_eq!(code(&json), 0);
    let all: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let names: Vec<&str> =
        all.as_array().expect("a list").iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names[..3], ["shell", "python", "node"]);
    let text = output(&["envs"]);
    let first: Vec<String> = stdout(&text)
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert_eq!(first, names);
}

#[test]
fn plan_prints_the_whole_sandbox_without_running_it() {
    let words = ["plan", "--timeout", "7", "--memory", "64M", "--", "sh", "-c", "exit 3"];
    let text = output(&words);
    assert_eq!(code(&text), 0);
    assert_eq!(stdout(&text), stdout(&output(&words)), "a stable order");
    let said = stdout(&text);
    for line in [
        "  run   sh -c 'exit 3'",
        "  memory     64M",
        "  time       7 s",
        "  inside    uid 1000, gid 1000",
    ] {
        assert!(said.lines().any(|it| it == line), "{line}: {said}");
    }
    let json = output(&[&["plan", "--json"], &words[1..]].concat());
    let plan: Plan = serde_json::from_slice(&json.stdout).expect("a plan");
    assert_eq!(plan.command().arguments, ["sh", "-c", "exit 3"]);
    assert_eq!((plan.limits().memory, plan.limits().time_ms), (64 << 20, 7000));
}

#[test]
fn a_project_may_be_named_relative_to_the_working_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("here")).expect("made");
    let mut command = crate::harness::command(&["plan", "--project", "here"]);
    let output = command.current_dir(directory.path()).output().expect("started");
    let line = stdout(&output).lines().find(|line| line.contains("/project ")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.ends_with("/here of this host, read-only")));
}

#[test]
fn packagers_get_completions_and_a_man_page() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = output(&["generate", "completions", shell]);
        assert_eq!(code(&completions), 0);
        assert!(stdout(&completions).contains("print-apparmor"), "{shell}");
    }
    let page = output(&["generate", "man"]);
    assert_eq!(code(&page), 0);
    let page = stdout(&page);
    for line in [".TH nix-sandbox-mcp 1", ".SH \"THE COMMAND EXEC\"", ".SH SETTINGS", "PROJECT_DIR"]
    {
        assert!(page.contains(line), "{line}");
    }
    assert!(!page.contains("GENERATE"), "hidden");
    assert_eq!(code(&output(&["generate", "poem"])), 125);
}
