//! What the fuzzers of `fuzz/` do with an input, and what must hold of any.
//!
//! Only with the feature `fuzzing`, and in unit tests, which replay the inputs that are kept in
//! `fuzz/corpus/`: the seeds, and whatever once broke something.

mod dice;
mod files;
mod plan;
mod policy;
mod server;
mod text;

pub use files::{cli_args, metadata_json, preset_toml, settings_toml};
pub use plan::{plan_build, step_order};
pub use policy::policy_json;
pub use server::mcp_line;
pub use text::{agent_frame, output_shaper};

/// What takes an input, and panics where something does not hold.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("agent_frame", agent_frame),
    ("cli_args", cli_args),
    ("mcp_line", mcp_line),
    ("metadata_json", metadata_json),
    ("output_shaper", output_shaper),
    ("plan_build", plan_build),
    ("policy_json", policy_json),
    ("preset_toml", preset_toml),
    ("settings_toml", settings_toml),
    ("step_order", step_order),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::TARGETS;

    /// `SANDBOX_CORPUS` names another copy, for users who may not read the sources.
    fn corpus() -> PathBuf {
        std::env::var_os("SANDBOX_CORPUS").map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus"),
            PathBuf::from,
        )
    }

    #[test]
    fn every_kept_input_is_taken_by_its_target() {
        let corpus = corpus();
        for (name, target) in TARGETS {
            let place = corpus.join(name);
            let files: Vec<_> =
                fs::read_dir(&place).expect(name).map(|file| file.expect(name).path()).collect();
            assert!(files.len() >= 3, "{name} has seeds");
            for file in files {
                eprintln!("{}", file.display());
                target(&fs::read(&file).expect("seed"));
            }
        }
        let kept = fs::read_dir(&corpus).expect("corpus").count();
        assert_eq!(kept, TARGETS.len(), "a directory for each target, and no other");
    }
}
