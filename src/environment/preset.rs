//! Presets: the environments that come with the program, one TOML file each.
//!
//! The files in `presets/` are the one source of truth: the Nix build takes `packages` from them,
//! hosts without Nix take `[host]`, both take the rest.

use serde::Deserialize;

use super::Interpreter;
use crate::plan::LimitOverrides;

/// Name and text of each, in the order in which they are listed.
const BUNDLED: [(&str, &str); 3] = [
    ("shell", include_str!("../../presets/shell.toml")),
    ("python", include_str!("../../presets/python.toml")),
    ("node", include_str!("../../presets/node.toml")),
];

/// One bundled environment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// The language it speaks.
    pub interpreter_type: Interpreter,
    /// One line for people and models: what Nix builds.
    pub description: String,
    /// A line of code that shows that it works.
    pub example: String,
    /// Attribute names in nixpkgs.
    pub packages: Vec<String>,
    /// Attribute names in `python3Packages`, given to `python3.withPackages`.
    #[serde(default)]
    pub python_packages: Vec<String>,
    /// What is looked for where no Nix is installed.
    pub host: HostPrograms,
    /// Limits over the defaults.
    pub limits: LimitOverrides,
}

/// What a preset needs of a host without Nix.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPrograms {
    /// The interpreter's program name.
    pub interpreter: String,
    /// One line for people and models; promises nothing that the host may lack.
    pub description: String,
    /// Further programs, shown when they are found. They come with `/usr` where there is one.
    pub programs: Vec<String>,
}

/// The names of the bundled presets, in a stable order.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUNDLED.iter().map(|(name, _)| *name)
}

/// The bundled preset called `name`, if there is one.
///
/// # Errors
/// A broken file in `presets/`: our own defect, which a test rules out.
#[must_use]
pub fn bundled(name: &str) -> Option<Result<Preset, toml::de::Error>> {
    BUNDLED.iter().find(|(bundled, _)| *bundled == name).map(|(_, text)| toml::from_str(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Limits;

    #[test]
    fn every_bundled_preset_is_whole_and_named_as_it_is_listed() {
        for name in names() {
            let preset = bundled(name).expect("listed").expect(name);
            assert_eq!(preset.name, name);
            assert_eq!(preset.host.interpreter, preset.interpreter_type.program(), "{name}");
            assert!(preset.packages.iter().any(|package| package == "coreutils"), "{name}");
            preset.limits.apply(&mut Limits::default()).expect(name);
        }
        assert_eq!(names().collect::<Vec<_>>(), ["shell", "python", "node"]);
        assert!(bundled("ruby").is_none());
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let text = BUNDLED[0].1.replace("packages", "pakages");
        let error = toml::from_str::<Preset>(&text).expect_err("misspelt").to_string();
        assert!(error.contains("unknown field `pakages`"), "{error}");
    }
}
