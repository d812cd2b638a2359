//! Nothing of the list is left out in silence, and the evidence tells of what is here.

use std::collections::BTreeSet;

use super::GROUPS;
use super::elsewhere::SHOWN;

fn ids() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().copied().flatten().map(|entry| entry.id)
}

#[test]
fn every_id_of_the_list_has_an_entry_or_is_shown_elsewhere() {
    let list: BTreeSet<_> = include_str!("list.txt").lines().collect();
    let elsewhere = SHOWN.iter().map(|shown| shown.id);
    let here: BTreeSet<_> = ids().chain(elsewhere).collect();
    let unknown: Vec<_> = here.difference(&list).collect();
    assert!(unknown.is_empty(), "not in list.txt: {unknown:?}");
    let missing: Vec<_> = list.difference(&here).collect();
    assert!(missing.is_empty(), "{} without an entry: {missing:?}", missing.len());
}

#[test]
fn what_may_vary_says_why_and_no_name_is_used_twice() {
    let mut names = BTreeSet::new();
    for entry in GROUPS.iter().copied().flatten() {
        assert!(names.insert(entry.name), "{} is used twice", entry.name);
        assert_eq!(entry.expected.contains('{'), !entry.varies.is_empty(), "{}", entry.name);
    }
}

/// `docs/evidence/walls.md` is made by `tests/walls`: after a new entry it has to be made anew.
#[test]
fn the_evidence_tells_of_every_entry() {
    let text = include_str!("../../docs/evidence/walls.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let told: BTreeSet<&str> = rows.filter(|name| name.contains('_')).collect();
    let entries: BTreeSet<&str> =
        GROUPS.iter().copied().flatten().map(|entry| entry.name).collect();
    assert_eq!(told, entries, "run tests/walls");
}

/// The switch that takes walls away is not in this program, and does nothing.
#[cfg(not(feature = "wall-removal"))]
#[test]
fn no_wall_can_be_taken_away() {
    let variable = b"NIX_SANDBOX_TEST_WITHOUT";
    let program = std::fs::read(super::support::program()).expect("the program");
    assert!(!program.windows(variable.len()).any(|window| window == variable));
}
