//! The house's rules, read off its imports.
//!
//! Floors and nevers are told in `docs/ARCHITECTURE.md`; this test holds those that the compiler
//! cannot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every source file with its text, comments and strings blanked out, unit tests cut off.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("src") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                // Whole directories of unit tests (`#[cfg(test)] mod tests;`).
                if path.file_name().is_some_and(|name| name != "tests") {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                let relative = path.strip_prefix(&root).expect("below src").to_owned();
                files.push((relative, code_only(&text)));
            }
        }
    }
    files.sort();
    assert!(files.len() > 20, "found the sources");
    files
}

fn code_only(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    before_tests
        .lines()
        .map(|line| {
            let comment = line.find("//").unwrap_or(line.len());
            // Every other piece between quotes is a string.
            line[..comment].split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The floors that a file names: `crate::NAME` and, for the binary, `nix_sandbox::NAME`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["crate::", "nix_sandbox::"] {
        for (at, _) in code.match_indices(prefix) {
            let rest = &code[at + prefix.len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                // `use crate::{a::B, c};` at one level, which is all that rustfmt leaves here.
                Some(list) => {
                    list.split('}').next().unwrap_or_default().split(',').map(str::trim).collect()
                }
                None => vec![rest],
            };
            for name in names {
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                found.insert(name[..end.unwrap_or(name.len())].to_owned());
            }
        }
    }
    found.remove("");
    found
}

fn floor(path: &Path) -> String {
    let first = path.components().next().expect("component").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// For each floor, the floors that it may name, besides itself.
const MAY_NAME: [(&str, &[&str]); 23] = [
    ("log", &[]),
    ("audit", &["log", "outcome", "plan", "request"]),
    ("policy", &[]),
    ("plan", &["policy"]),
    ("request", &["plan"]),
    ("outcome", &["plan"]),
    ("planner", &["plan", "policy", "request", "environment"]),
    ("kernel", &["policy"]),
    ("engine", &["kernel", "plan", "policy", "outcome", "request"]),
    ("supervisor", &["engine", "kernel", "outcome", "plan"]),
    ("backend", &["engine", "kernel", "outcome", "plan", "policy"]),
    ("gallery", &["kernel", "outcome"]),
    ("outputs", &["outcome", "plan"]),
    ("environment", &["plan", "policy"]),
    ("settings", &["audit", "log", "plan", "policy", "environment", "planner", "session"]),
    ("doctor", &["backend", "engine", "kernel", "plan", "policy", "outcome", "supervisor"]),
    ("session", &["request", "outcome", "plan", "supervisor", "backend", "gallery"]),
    (
        "runner",
        &[
            "audit",
            "backend",
            "doctor",
            "environment",
            "gallery",
            "outcome",
            "outputs",
            "plan",
            "planner",
            "request",
            "supervisor",
            "session",
        ],
    ),
    ("mcp", &["planner", "runner", "request", "outcome", "plan", "environment", "outputs"]),
    ("cli", &["runner", "request", "outcome", "plan", "environment"]),
    (
        "fuzzing",
        &[
            "cli",
            "engine",
            "environment",
            "mcp",
            "outcome",
            "plan",
            "planner",
            "policy",
            "request",
            "runner",
            "session",
            "settings",
        ],
    ),
    ("lib", &[]),
    (
        "main",
        &[
            "audit",
            "backend",
            "cli",
            "doctor",
            "engine",
            "environment",
            "log",
            "mcp",
            "outputs",
            "plan",
            "planner",
            "runner",
            "settings",
        ],
    ),
];

/// Floors that may name each other are one floor.
#[test]
fn no_floor_is_above_itself() {
    let mut left: Vec<(&str, &[&str])> = MAY_NAME.to_vec();
    // Takes away who names nobody that is left, floor by floor.
    loop {
        let standing: Vec<&str> = left.iter().map(|(own, _)| *own).collect();
        let before = left.len();
        left.retain(|(_, named)| named.iter().any(|other| standing.contains(other)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "in a circle, or above one: {left:?}");
}

/// A permission that nobody needs is a door that somebody finds open.
#[test]
fn what_a_floor_may_name_it_does_name() {
    let mut unused: Vec<(&str, &str)> = MAY_NAME
        .iter()
        .flat_map(|(own, all)| all.iter().map(move |other| (*own, *other)))
        .collect();
    for (path, code) in sources() {
        let (own, named) = (floor(&path), imports(&code));
        unused.retain(|(floor, other)| *floor != own || !named.contains(*other));
    }
    assert!(unused.is_empty(), "may name, and does not: {unused:?}");
}

#[test]
fn imports_go_down_only() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let own = floor(&path);
        let (_, allowed) = MAY_NAME
            .iter()
            .find(|(name, _)| *name == own)
            .unwrap_or_else(|| panic!("{own} is no floor; give it a place in MAY_NAME"));
        for name in imports(&code) {
            if name != own && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{} names crate::{name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_words_do_no_io_and_see_no_clock() {
    let pure = ["plan", "policy", "request", "outcome", "planner"];
    let forbidden = [
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::io",
        "Instant",
        "SystemTime",
        "libc::",
        "env::var",
        "env::current",
        "File::",
        "Command::new",
        "nix::fcntl",
        "nix::unistd",
    ];
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        if pure.contains(&floor(&path).as_str()) {
            let found = forbidden.iter().filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{} says {word}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_lives_in_the_kernel_room_only() {
    let mut wrong = Vec::new();
    let mut blocks = 0;
    for (path, code) in sources() {
        let count = code.matches("unsafe {").count() + code.matches("unsafe fn").count();
        if floor(&path) == "kernel" {
            blocks += count;
        } else if count > 0 {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "unsafe in {wrong:?}");
    assert!(blocks > 0, "the kernel room has some");
}

#[test]
fn rmcp_is_named_in_one_file() {
    let named: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(_, code)| code.contains("rmcp"))
        .map(|(path, _)| path)
        .collect();
    assert!(named.len() <= 1, "{named:?}");
}

#[test]
fn a_function_fits_a_screen() {
    let mut long = Vec::new();
    for (path, code) in sources() {
        let mut start: Option<(usize, usize, String)> = None;
        for (number, line) in code.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            if start.is_none()
                && (head.starts_with("fn ") || head.contains(" fn "))
                && head.ends_with('{')
            {
                start = Some((number, indent, head.to_owned()));
            } else if let Some((first, at, name)) = &start
                && line.starts_with('}') | (indent == *at && head == "}")
            {
                if number - first > 75 {
                    long.push(format!("{}: {name} has {} lines", path.display(), number - first));
                }
                start = None;
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// The names that a manifest has in its tables of dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest)).expect(manifest);
    let mut names = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('[') {
            inside =
                matches!(line, "[dependencies]" | "[dev-dependencies]" | "[build-dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| inside) {
            names.push(name.trim().to_owned());
        }
    }
    assert!(!names.is_empty(), "{manifest} has dependencies");
    names
}

#[test]
fn a_short_written_reason_for_each_dependency() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ARCHITECTURE.md");
    let page = fs::read_to_string(page).expect("ARCHITECTURE.md");
    let (_, table) = page.split_once("## Dependencies").expect("a chapter");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let lacking: Vec<String> = [dependencies("Cargo.toml"), dependencies("fuzz/Cargo.toml")]
        .concat()
        .into_iter()
        .filter(|name| name != "nix-sandbox-mcp")
        .filter(|name| !rows.iter().any(|row| row.contains(&format!("`{name}`"))))
        .collect();
    assert!(lacking.is_empty(), "docs/ARCHITECTURE.md has no reason for {lacking:?}");
}
