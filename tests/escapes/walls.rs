//! Which wall stops which escape: runs every entry with walls missing and writes
//! `docs/evidence/walls.md`. Started by `tests/walls`; needs the feature `wall-removal`.
//!
//! `walls FILE [MACHINE]` writes the table, with what a machine printed; `walls --in-a-machine` is
//! what runs there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

#[path = "main.rs"]
#[allow(dead_code, unused_imports, reason = "what the tests need is not built here")]
mod escapes;
mod machine;
mod remarks;

use escapes::harness::{self, Entry};
pub(crate) use escapes::support;
use machine::Machine;

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

/// What one entry showed.
#[derive(Debug, Clone)]
enum Row {
    /// The lines that succeed where no wall stands, by their text before the colon.
    Lines(BTreeMap<String, Line>),
    /// It was not run without a wall.
    OnlyInAVm,
}

impl Line {
    /// How many walls stop it: one, if nothing is left when that one is missing.
    fn count(&self) -> usize {
        if self.needs.is_empty() { self.stopped_by.len().max(2) } else { 1 }
    }
}

impl Row {
    fn lines(&self) -> impl Iterator<Item = (&String, &Line)> {
        match self {
            Self::Lines(lines) => Some(lines),
            Self::OnlyInAVm => None,
        }
        .into_iter()
        .flatten()
    }

    /// The walls that stop the line that fewest walls stop; none of these, if it has no line.
    fn count(&self) -> usize {
        self.lines().map(|(_, line)| line.count()).min().unwrap_or_default()
    }

    /// The lines that one wall alone stops.
    fn weak(&self) -> String {
        let weak = self.lines().filter(|(_, line)| line.count() < 2);
        weak.map(|(text, _)| format!("`{text}`")).collect::<Vec<_>>().join(", ")
    }

    fn cell(&self, wall: &str) -> &'static str {
        let Self::Lines(lines) = self else { return "" };
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
        ["--in-a-machine"] => in_a_machine(&entries),
        [table] => write(table, &entries, &Machine::default()),
        [table, machine] => {
            write(
                table,
                &entries,
                &Machine::read(&std::fs::read_to_string(machine).expect("machine")),
            );
        }
        _ => panic!("usage: walls TABLE [MACHINE], or walls --in-a-machine"),
    }
}

/// Runs what must not be run elsewhere, one after the other, and prints what it showed.
#[allow(clippy::print_stdout, reason = "it is read from there")]
fn in_a_machine(entries: &[&Entry]) {
    println!("{}", machine::tell_kernel(&kernel()));
    for entry in entries.iter().filter(|entry| !entry.only_in_a_vm.is_empty()) {
        assert!(entry.can_run(), "this machine cannot run {}", entry.name);
        println!("{}", machine::tell(entry.name, &examine(entry)));
    }
}

/// Runs what may be run here, adds what the machine showed, and writes the table.
fn write(path: &str, entries: &[&Entry], machine: &Machine) {
    let lacking: Vec<_> = entries.iter().filter(|entry| !entry.can_run()).map(|e| e.name).collect();
    assert!(lacking.is_empty(), "this host cannot run {lacking:?}");
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = std::time::Instant::now();
                    let row = row(entry, machine);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.name, row);
                    eprintln!("{} ({:.1} s)", entry.name, started.elapsed().as_secs_f64());
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    std::fs::write(path, table(entries, &rows, machine)).expect("write the table");
    let unexplained: Vec<_> = entries
        .iter()
        .filter(|entry| matches!(rows[entry.name], Row::Lines(_)))
        .filter(|entry| rows[entry.name].count() < 2 && remarks::of(entry).is_empty())
        .map(|entry| format!("{} ({})", entry.name, rows[entry.name].count()))
        .collect();
    assert!(unexplained.is_empty(), "no reason is given for {}", unexplained.join(", "));
}

/// What an entry showed here, or in the machine.
fn row(entry: &Entry, machine: &Machine) -> Row {
    if entry.only_in_a_vm.is_empty() {
        return examine(entry);
    }
    machine.rows.get(entry.name).cloned().unwrap_or(Row::OnlyInAVm)
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
        return Row::Lines(lines);
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
    Row::Lines(lines)
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

fn table(entries: &[&Entry], rows: &BTreeMap<&str, Row>, machine: &Machine) -> String {
    let run = rows.values().filter(|row| matches!(row, Row::Lines(_))).count();
    let open: Vec<&Row> = rows.values().filter(|row| row.lines().next().is_some()).collect();
    let twice = open.iter().filter(|row| row.count() >= 2).count();
    let attempts: Vec<&Line> = open.iter().flat_map(|row| row.lines()).map(|(_, l)| l).collect();
    let attempts_twice = attempts.iter().filter(|line| line.count() >= 2).count();
    let percent = |part: usize, whole: usize| (part * 100).checked_div(whole).unwrap_or_default();
    let mut text = format!(
        "# Which wall stops what\n\n\
         Generated by `tests/walls` on {}, started by {}; do not edit. Each line is\n\
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
         | run with walls missing | {run} | |\n\
         | something succeeds where none of these walls stands | {} | {} |\n\
         | of these, stopped by two walls or more | {twice} ({} %) | {attempts_twice} ({} %) |\n\n",
        kernel(),
        if support::is_root() { "root" } else { "an ordinary user" },
        if machine.kernel.is_empty() { "no other" } else { &machine.kernel },
        entries.len(),
        open.len(),
        attempts.len(),
        percent(twice, open.len()),
        percent(attempts_twice, attempts.len()),
    );
    let heads: Vec<&str> = WALLS.iter().map(|(_, head)| *head).collect();
    let _ = writeln!(text, "| entry | {} | walls | remark |", heads.join(" | "));
    let _ = writeln!(text, "|---|{}---|---|", "---|".repeat(WALLS.len()));
    for entry in entries {
        let row = &rows[entry.name];
        let cells: Vec<&str> = WALLS.iter().map(|(name, _)| row.cell(name)).collect();
        let number = match row {
            Row::OnlyInAVm => "—".to_owned(),
            Row::Lines(lines) if lines.is_empty() => "always".to_owned(),
            Row::Lines(_) => row.count().to_string(),
        };
        let reason = match row {
            Row::OnlyInAVm => format!("only in a virtual machine: {}", entry.only_in_a_vm),
            Row::Lines(_) if row.count() < 2 => remarks::of(entry).to_owned(),
            Row::Lines(_) => entry.note.to_owned(),
        };
        let weak = row.weak();
        let remark = if weak.is_empty() { reason } else { format!("{weak}: {reason}") };
        let in_a_vm = matches!(row, Row::Lines(_)) && !entry.only_in_a_vm.is_empty();
        let remark = if in_a_vm { format!("VM. {remark}") } else { remark };
        let _ = writeln!(text, "| {} | {} | {number} | {remark} |", entry.name, cells.join(" | "));
    }
    text
}
