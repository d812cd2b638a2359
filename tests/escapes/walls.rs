//! Which wall stops which escape: runs every entry with walls missing and writes
//! `docs/evidence/walls.md`. Started by `tests/walls`; needs the feature `wall-removal`.
//!
//! `walls here` and, in a virtual machine, `walls machine` print what each entry showed;
//! `walls TABLE ROWS` writes the table of what both printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "main.rs"]
#[allow(dead_code, unused_imports, reason = "what the tests need is not built here")]
mod escapes;
mod remarks;
mod rows;

use escapes::harness::{self, Entry};
use rows::Rows;

/// The walls that can be left out, with the head of their column. What cannot be is told in the table's
/// introduction.
const WALLS: [(&str, &str); 12] = [
    ("seccomp", "seccomp"),
    ("landlock", "Landlock"),
    ("capabilities", "no capabilities"),
    ("namespace-limits", "namespace limits"),
    ("read-only", "read-only mounts"),
    ("masks", "masks of /proc"),
    ("undumpable", "hidden pid 1"),
    ("keyring", "own keyring"),
    ("network", "own network"),
    ("rlimits", "rlimits"),
    ("cgroup", "cgroup"),
    ("watch", "memory watch"),
];

/// How many payloads run at once.
const AT_ONCE: usize = 4;

/// What became of one line of an observation when walls were missing.
#[derive(Debug, Default, Clone)]
struct Line {
    /// The walls of which each alone stops it.
    stopped_by: BTreeSet<&'static str>,
    /// The walls without any one of which it succeeds.
    needs: BTreeSet<&'static str>,
}

/// What one entry showed: the lines that succeed where no wall stands, by their text before the colon.
#[derive(Debug, Default)]
struct Row(BTreeMap<String, Line>);

impl Line {
    /// How many walls stop it: one, if nothing is left when that one is missing.
    fn count(&self) -> usize {
        if self.needs.is_empty() { self.stopped_by.len().max(2) } else { 1 }
    }
}

impl Row {
    /// The walls that stop the line that fewest walls stop; none of these, if it has no line.
    fn count(&self) -> usize {
        self.0.values().map(Line::count).min().unwrap_or_default()
    }

    /// The lines that one wall alone stops.
    fn weak(&self) -> String {
        let weak = self.0.iter().filter(|(_, line)| line.count() < 2);
        weak.map(|(text, _)| format!("`{text}`")).collect::<Vec<_>>().join(", ")
    }

    fn cell(&self, wall: &str) -> &'static str {
        let Self(lines) = self;
        let stops = lines.values().filter(|line| line.stopped_by.contains(wall)).count();
        let needed = lines.values().any(|line| line.needs.contains(wall));
        match (stops, needed) {
            (0, false) => "",
            (0, true) => "needed",
            (all, false) if all == lines.len() => "stops",
            (all, true) if all == lines.len() => "stops, needed",
            (_, false) => "part",
            (_, true) => "part, needed",
        }
    }
}

fn main() {
    let entries: Vec<&Entry> = escapes::GROUPS.iter().copied().flatten().collect();
    let unknown = remarks::unknown(&entries);
    assert!(unknown.is_empty(), "reasons are given for what is not there: {unknown:?}");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [place @ ("here" | "machine")] => show(place, "", &entries),
        [place @ ("here" | "machine"), word] => show(place, word, &entries),
        [table, rows] => write(table, &entries, &rows::read(rows)),
        _ => panic!("usage: walls here [WORD], walls machine [WORD], or walls TABLE ROWS"),
    }
}

/// Runs the entries that belong there and whose names have the word, and prints what each showed.
#[allow(clippy::print_stdout, reason = "it is read from there")]
fn show(place: &str, word: &str, entries: &[&Entry]) {
    let here = place == "here";
    // Those of the machine compete for all that it has.
    let at_once = if here { AT_ONCE } else { 1 };
    let wanted =
        |entry: &&&Entry| entry.only_in_a_vm.is_empty() == here && entry.name.contains(word);
    let entries: Vec<_> = entries.iter().filter(wanted).collect();
    let lacking: Vec<_> = entries.iter().filter(|entry| !entry.can_run()).map(|e| e.name).collect();
    assert!(lacking.is_empty(), "{lacking:?} cannot be run here");
    println!("{}", rows::place(place, &kernel()));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    println!("{}", rows::row(entry.name, &examine(entry)));
                }
            });
        }
    });
}

/// Writes the table.
fn write(path: &str, entries: &[&Entry], rows: &Rows) {
    std::fs::write(path, table(entries, rows)).expect("write the table");
    let unexplained: Vec<_> = entries
        .iter()
        .filter(|entry| rows.of(entry).is_some_and(|row| row.count() < 2))
        .filter(|entry| remarks::of(entry).is_empty())
        .map(|entry| entry.name)
        .collect();
    assert!(unexplained.is_empty(), "no reason is given for {}", unexplained.join(", "));
}

/// This kernel, by its release and the version of its Landlock.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let abi = nix_sandbox::kernel::landlock_abi().map_or("none".to_owned(), |abi| abi.to_string());
    format!("Linux {} (Landlock ABI {abi})", release.trim())
}

/// Runs an entry with all walls, with none, with each alone, and without each.
///
/// A further wall never lets through what fewer stop. So what is stopped by two walls, each alone, needs
/// no further run; and what one stops alone can be let through by that one's removal only.
fn examine(entry: &Entry) -> Row {
    let whole = observe(entry, "");
    let wrong = harness::differences(entry.expected, &whole);
    assert!(wrong.is_empty(), "{} is not right with all walls: {wrong:?}", entry.name);
    let names = || WALLS.iter().map(|(name, _)| *name);
    let without = |removed: Vec<&str>| succeeded(&whole, &observe(entry, &removed.join(",")));
    let mut lines: BTreeMap<String, Line> =
        without(names().collect()).into_iter().map(|line| (line, Line::default())).collect();
    if lines.is_empty() {
        return Row(lines);
    }
    for wall in names() {
        let alone = without(names().filter(|name| *name != wall).collect());
        for (text, line) in &mut lines {
            if !alone.contains(text) {
                line.stopped_by.insert(wall);
            }
        }
    }
    for wall in names() {
        let may_matter =
            |line: &Line| line.stopped_by.is_empty() || line.stopped_by.iter().eq([&wall]);
        if !lines.values().any(may_matter) {
            continue;
        }
        let missing = without(vec![wall]);
        for (text, line) in &mut lines {
            if missing.contains(text) {
                line.needs.insert(wall);
            }
        }
    }
    Row(lines)
}

/// One run, in a thread of its own, as each test has: what an entry's preparation holds ends with it.
fn observe(entry: &Entry, removed: &str) -> String {
    let run = || entry.observe(&[("NIX_SANDBOX_TEST_WITHOUT", removed)]).text;
    std::thread::scope(|scope| scope.spawn(run).join()).expect("a run")
}

/// The lines of `observed` that are not as in `whole` and are no refusal either.
fn succeeded(whole: &str, observed: &str) -> BTreeSet<String> {
    let mut before: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in whole.lines() {
        let (what, answer) = parts(line);
        before.entry(what).or_default().push(answer);
    }
    let changed = |line: &&str| {
        let (what, answer) = parts(line);
        !refused(answer) && !before.get(what).is_some_and(|answers| answers.contains(&answer))
    };
    // What the result says of a wall is no attempt.
    let attempts = observed.lines().filter(|line| !line.starts_with("wall "));
    attempts.filter(changed).map(|line| parts(line).0.to_owned()).collect()
}

fn parts(line: &str) -> (&str, &str) {
    line.rsplit_once(": ").unwrap_or((line, line))
}

/// Names of errnos, a signal's name, or how a payload ended: an end is no success.
fn refused(answer: &str) -> bool {
    let errno = |word: &str| {
        word.len() > 1
            && word.starts_with('E')
            && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    !answer.is_empty() && answer.split(' ').all(errno)
        || ["SYS", "SEGV", "ILL"].contains(&answer)
        || answer.starts_with('[')
}

fn table(entries: &[&Entry], rows: &Rows) -> String {
    let open: Vec<&Row> =
        entries.iter().filter_map(|entry| rows.of(entry)).filter(|row| !row.0.is_empty()).collect();
    let twice = open.iter().filter(|row| row.count() >= 2).count();
    let attempts: Vec<&Line> = open.iter().flat_map(|row| row.0.values()).collect();
    let attempts_twice = attempts.iter().filter(|line| line.count() >= 2).count();
    let percent = |part: usize, whole: usize| (part * 100).checked_div(whole).unwrap_or_default();
    let mut text = format!(
        "# Which wall stops what\n\n\
         Generated by `tests/walls` on {}, started by root; do not edit. Each line is\n\
         an entry of [`tests/escapes`](../../tests/escapes/README.md): what it tries is told there, and so is\n\
         what is right. Those marked *VM* could harm the machine: they were run on {},\n\
         in a virtual one (`tests/vm`), the only one with cgroups.\n\n\
         Every payload was run with all walls, with none of those below, with each of them alone, and\n\
         without each of them. *stops*: this wall alone is enough. *part*: for some of what the payload\n\
         tries. *needed*: when just this wall is missing, something succeeds. *walls*: how many stop the\n\
         attempt that fewest stop; two, where no single wall is needed, but several work together.\n\n\
         What cannot be taken away, because nothing would be left of a sandbox: the user, PID, mount, IPC,\n\
         UTS and cgroup namespaces, a file tree of its own, no uid of root's on the host, no_new_privs,\n\
         closed descriptors, a cleared environment. *always*: these alone stop it. The memory watch stands\n\
         where no cgroup does, so without the cgroup it is there.\n\n\
         | | entries | attempts in them |\n|---|---|---|\n\
         | all | {} | |\n\
         | run with walls missing | {} | |\n\
         | something succeeds where none of these walls stands | {} | {} |\n\
         | of these, stopped by two walls or more | {twice} ({} %) | {attempts_twice} ({} %) |\n\n",
        rows.here,
        rows.machine,
        entries.len(),
        entries.iter().filter(|entry| rows.of(entry).is_some()).count(),
        open.len(),
        attempts.len(),
        percent(twice, open.len()),
        percent(attempts_twice, attempts.len()),
    );
    let heads: Vec<&str> = WALLS.iter().map(|(_, head)| *head).collect();
    let _ = writeln!(text, "| entry | {} | walls | remark |", heads.join(" | "));
    let _ = writeln!(text, "|---|{}---|---|", "---|".repeat(WALLS.len()));
    for entry in entries {
        let Some(row) = rows.of(entry) else {
            let cells = " |".repeat(WALLS.len());
            let reason = entry.only_in_a_vm;
            let _ =
                writeln!(text, "| {} |{cells} — | not run without walls: {reason} |", entry.name);
            continue;
        };
        let cells: Vec<&str> = WALLS.iter().map(|(name, _)| row.cell(name)).collect();
        let number = if row.0.is_empty() { "always".to_owned() } else { row.count().to_string() };
        let reason = if row.count() < 2 { remarks::of(entry) } else { entry.note };
        let weak = row.weak();
        let remark = if weak.is_empty() { reason.to_owned() } else { format!("{weak}: {reason}") };
        let remark = if entry.only_in_a_vm.is_empty() { remark } else { format!("VM. {remark}") };
        let _ = writeln!(text, "| {} | {} | {number} | {remark} |", entry.name, cells.join(" | "));
    }
    text
}
