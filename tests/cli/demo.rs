//! `demo`: the main job.

use crate::harness::{code, output, stderr, stdout};

#[test]
fn demo_computes_in_every_environment_and_shows_the_wall_that_stopped_each_attempt() {
    let output = output(&["demo"]);
    let said = stdout(&output);
    assert_eq!(code(&output), 0, "{said}{}", stderr(&output));
    assert!(!said.contains('\x1b'), "no colours where there is no terminal");
    let computed = said.matches("→ 42").count();
    assert!(computed >= 1);
    assert_eq!(said.matches("✓ stopped: ").count(), 3 * computed, "{said}");
    assert_eq!(said.matches("wall: ").count(), 3 * computed, "{said}");
    let last = said.lines().last().expect("a summary");
    assert!(last.starts_with(&format!("✓ {computed} environments computed")), "{last}");
}
