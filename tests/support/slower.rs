//! Machines on which everything takes longer.

#![allow(dead_code, reason = "each suite uses its part")]

/// How many times longer (`SANDBOX_SLOWER`): 10 without KVM, say. A test whose limit of time is part of
/// what it shows scales that limit, and shows the same.
pub(crate) fn slower() -> u32 {
    std::env::var("SANDBOX_SLOWER")
        .map_or(1, |text| text.parse().expect("SANDBOX_SLOWER is a number"))
}

/// A limit of time that is `usual` elsewhere, in seconds.
pub(crate) fn seconds(usual: f64) -> String {
    (usual * f64::from(slower())).to_string()
}

/// The limit of a run that says none.
pub(crate) fn patience(options: &[&str]) -> Vec<String> {
    match slower() > 1 && !options.contains(&"--timeout") {
        true => vec!["--timeout".to_owned(), seconds(30.0)],
        false => Vec::new(),
    }
}
