//! The report for people: the verdict first, then a table, then what is only worth knowing.

use std::fmt::Write as _;

use super::{Check, LAUNCH, Report, Status};
use crate::outcome::{Strength, WallReport};
use crate::plan::Wall;

/// Columns of the table, and how wide it may get.
const NAME: usize = 18;
const STATE: usize = 10;
const WIDTH: usize = 100;

pub(super) fn verdict(report: &Report) -> String {
    if !report.can_run() {
        let why = report.check(LAUNCH).map_or("it was not tried", |check| check.found.as_str());
        return format!("can run: no; {why}");
    }
    let names = |strength: Strength| -> Vec<&str> {
        let walls = report.walls.iter().filter(|wall| wall.strength == strength);
        walls.map(|wall| wall.wall.name()).collect()
    };
    let mut verdict = "can run: yes".to_owned();
    let lacks = [("weaker", names(Strength::Weaker)), ("off", names(Strength::Off))];
    for (how, names) in lacks.iter().filter(|(_, names)| !names.is_empty()) {
        let walls = if names.len() == 1 { "wall" } else { "walls" };
        let _ = write!(verdict, "; {} {walls} {how} ({})", names.len(), names.join(", "));
    }
    if lacks.iter().all(|(_, names)| names.is_empty()) {
        verdict.push_str("; every wall stands");
    }
    verdict
}

fn instead(other: &str) -> String {
    format!(
        "the settings have {other} make the sandboxes. This is what the engine could do; which walls \
         stand with {other}, each result says (`exec --json`)"
    )
}

pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}\n", wrap(&verdict(report), 0));
    if let Some(other) = report.instead {
        let _ = writeln!(text, "note: {}", wrap(&instead(other), 6));
    }
    if let Some(remedy) = remedy_of_no(report) {
        let _ = writeln!(text, "{:6}{}", "fix:", wrap(remedy, 6));
    }
    if !report.walls.is_empty() {
        heading(&mut text, "walls", "what each covers, or what is missing");
        for wall in &report.walls {
            let remedy = remedy_of_wall(report, wall);
            row(&mut text, wall.wall.name(), strength(wall.strength), &wall.detail, remedy);
        }
    }
    heading(&mut text, "checks", "each was performed, in a process that is gone again");
    let (worth_knowing, checks): (Vec<&Check>, Vec<&Check>) =
        report.checks.iter().partition(|check| is_worth_knowing(check));
    // A remedy is told once: under the verdict, beside the wall, or at the first check.
    let mut told: Vec<&str> = remedy_of_no(report).into_iter().collect();
    told.extend(report.walls.iter().filter_map(|wall| remedy_of_wall(report, wall)));
    for check in checks {
        let new = remedy(check).filter(|remedy| !told.contains(remedy));
        row(&mut text, check.name, status(check.status), &check.found, new);
        told.extend(new);
    }
    heading(&mut text, "this host", "what is so for every process on it, in a sandbox or not");
    for check in worth_knowing {
        row(&mut text, check.name, "", &check.found, None);
    }
    text
}

fn is_worth_knowing(check: &Check) -> bool {
    check.status == Status::Info && !check.found.starts_with("not tried")
}

fn remedy(check: &Check) -> Option<&str> {
    check.remedy.as_deref()
}

fn remedy_of_no(report: &Report) -> Option<&str> {
    report.check(LAUNCH).and_then(remedy)
}

/// Walls that can be missing have a check of the same name.
fn remedy_of_wall<'r>(report: &'r Report, wall: &WallReport) -> Option<&'r str> {
    let named = matches!(wall.wall, Wall::Landlock | Wall::Cgroup | Wall::Keyring);
    let missing = wall.strength != Strength::Active && named;
    missing.then(|| report.check(wall.wall.name()).and_then(remedy)).flatten()
}

const fn strength(strength: Strength) -> &'static str {
    match strength {
        Strength::Active => "active",
        Strength::Weaker => "weaker",
        Strength::Off => "off",
    }
}

const fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Degraded => "degraded",
        Status::Failed => "FAILED",
        Status::Info => "-",
    }
}

fn heading(text: &mut String, name: &str, what: &str) {
    let _ = writeln!(text, "\n{name}: {what}");
}

fn row(text: &mut String, name: &str, state: &str, reason: &str, remedy: Option<&str>) {
    let state_width = if state.is_empty() { 0 } else { STATE };
    let margin = 2 + NAME + state_width;
    let reason = wrap(reason, margin);
    let _ = writeln!(text, "  {name:NAME$}{state:state_width$}{reason}");
    if let Some(remedy) = remedy {
        let _ = writeln!(text, "{:margin$}fix: {}", "", wrap(remedy, margin + 5));
    }
}

/// Breaks between words; lines after the first begin at `margin`.
fn wrap(text: &str, margin: usize) -> String {
    let mut wrapped = String::new();
    let mut column = margin;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > margin && column + 1 + width > WIDTH {
            let _ = write!(wrapped, "\n{:margin$}", "");
            column = margin;
        } else if column > margin {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, Host};
    use super::*;

    fn check(name: &'static str, status: Status, found: &str, remedy: Option<&str>) -> Check {
        let cause = remedy.map(|_| Cause::Chroot);
        Check { name, status, found: found.to_owned(), cause, remedy: remedy.map(str::to_owned) }
    }

    fn wall(wall: Wall, strength: Strength, detail: &str) -> WallReport {
        WallReport { wall, strength, detail: detail.to_owned() }
    }

    fn weak() -> Report {
        Report {
            checks: vec![
                check("system", Status::Info, "Debian, Linux 6.1 on x86_64", None),
                check(
                    "landlock",
                    Status::Degraded,
                    "ABI 2; not covered: truncation",
                    Some("a newer kernel"),
                ),
                check("cgroup", Status::Degraded, "off: v1", Some("boot with v2")),
                check(LAUNCH, Status::Ok, "a sandbox stood", None),
            ],
            walls: vec![
                wall(Wall::Namespaces, Strength::Active, "seven"),
                wall(Wall::Landlock, Strength::Weaker, "ABI 2; not covered: truncation"),
                wall(Wall::Cgroup, Strength::Off, "no cgroup"),
            ],
            host: Host::default(),
            instead: None,
        }
    }

    #[test]
    fn what_was_found_of_the_engine_is_not_said_of_another() {
        let text = report(&Report { instead: Some("bubblewrap"), ..weak() });
        assert!(
            text.contains("\nnote: the settings have bubblewrap make the sandboxes."),
            "{text}"
        );
    }

    #[test]
    fn the_whole_text_of_a_weaker_host() {
        let expected = "\
can run: yes; 1 wall weaker (landlock); 1 wall off (cgroup)

walls: what each covers, or what is missing
  namespaces        active    seven
  landlock          weaker    ABI 2; not covered: truncation
                              fix: a newer kernel
  cgroup            off       no cgroup
                              fix: boot with v2

checks: each was performed, in a process that is gone again
  landlock          degraded  ABI 2; not covered: truncation
  cgroup            degraded  off: v1
  launch            ok        a sandbox stood

this host: what is so for every process on it, in a sandbox or not
  system            Debian, Linux 6.1 on x86_64
";
        assert_eq!(weak().to_text(), expected);
        assert_eq!(weak().exit_code(), 1);
    }

    #[test]
    fn the_whole_text_of_a_host_that_cannot() {
        let report = Report {
            checks: vec![
                check(
                    "user_namespace",
                    Status::Failed,
                    "create: EPERM; a chroot",
                    Some("leave it"),
                ),
                check("namespaces", Status::Info, "not tried: it needs user_namespace", None),
                check(LAUNCH, Status::Failed, "create: EPERM; a chroot", Some("leave it")),
            ],
            walls: vec![],
            host: Host::default(),
            instead: None,
        };
        let expected = "\
can run: no; create: EPERM; a chroot
fix:  leave it

checks: each was performed, in a process that is gone again
  user_namespace    FAILED    create: EPERM; a chroot
  namespaces        -         not tried: it needs user_namespace
  launch            FAILED    create: EPERM; a chroot

this host: what is so for every process on it, in a sandbox or not
";
        assert_eq!(report.to_text(), expected);
        assert_eq!(report.exit_code(), 2);
    }

    #[test]
    fn a_host_with_everything_says_so() {
        let report = Report {
            checks: vec![check(LAUNCH, Status::Ok, "a sandbox stood", None)],
            walls: vec![wall(Wall::Namespaces, Strength::Active, "seven")],
            host: Host::default(),
            instead: None,
        };
        assert_eq!(report.verdict(), "can run: yes; every wall stands");
        assert_eq!(report.exit_code(), 0);
    }

    #[test]
    fn long_lines_break_between_words_and_no_word_is_lost() {
        let long = "word ".repeat(60);
        let wrapped = wrap(long.trim_end(), 30);
        assert!(wrapped.lines().skip(1).all(|line| line.len() <= WIDTH && line.starts_with("   ")));
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
