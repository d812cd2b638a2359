//! What people and builders write: metadata, presets, settings, command lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::environment::artifact;
use crate::environment::preset::Preset;
use crate::plan::{LimitOverrides, Limits};

/// Limits that were taken can be applied, and then are in range.
fn in_range(overrides: &LimitOverrides) {
    let mut limits = Limits::default();
    overrides.apply(&mut limits).expect("what was taken can be applied");
    limits.check().expect("what was applied is in range");
}

/// One or more sentences that say something and end somewhere.
fn a_reason(reason: &str, input: &[u8]) {
    assert!(!reason.trim().is_empty(), "a refusal says why");
    assert!(reason.len() < 1000 + 8 * input.len(), "a refusal is no flood: {} bytes", reason.len());
}

/// Any bytes as `metadata.json`.
pub fn metadata_json(bytes: &[u8]) {
    match artifact::judge(bytes) {
        Ok((name, limits)) => {
            in_range(&limits);
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            assert!((1..=64).contains(&name.len()) && name.bytes().all(plain), "{name:?}");
            assert!(name != "." && name != "..");
        }
        Err(reason) => a_reason(&reason, bytes),
    }
}

/// Any text as a preset.
pub fn preset_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match toml::from_str::<Preset>(text) {
        // A test looks at the limits of those that are bundled; here they may be anything.
        Ok(preset) => drop(preset.limits.apply(&mut Limits::default())),
        Err(error) => a_reason(&error.to_string(), bytes),
    }
}

/// Any bytes as a settings file.
pub fn settings_toml(bytes: &[u8]) {
    match crate::settings::judge(bytes) {
        Ok((limits, variables)) => {
            in_range(&limits);
            for name in variables {
                assert!(!crate::planner::OWN_VARIABLES.contains(&name.as_str()), "{name:?}");
                assert!(!name.is_empty());
                assert!(!name.contains(['=', '\0']), "{name:?}");
            }
        }
        Err(reason) => a_reason(&reason, bytes),
    }
}

/// Any words, one on a line, as a command line: what follows `--` is the command, word for word.
pub fn cli_args(bytes: &[u8]) {
    let words: Vec<OsString> =
        bytes.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec())).collect();
    let line = [vec!["nix-sandbox-mcp".into()], words.clone()].concat();
    match crate::cli::exec_command(line) {
        // Help is as long as it is.
        Err(error) if error.use_stderr() => a_reason(&error.to_string(), bytes),
        _ => {}
    }
    let line = [vec!["nix-sandbox-mcp".into(), "exec".into(), "--".into()], words.clone()].concat();
    let command = crate::cli::exec_command(line).expect("any words are a command");
    assert_eq!(command, Some(words), "no word of a command is an option");
}
