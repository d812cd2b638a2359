//! All environments by name.

use std::sync::{Arc, OnceLock};

use super::artifact::{self, Artifact, Skipped};
use super::{Environment, Sources, host, preset};

/// Why there is no such environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Nothing has that name.
    #[error("there is no environment {name:?}; the environments are {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, in a stable order.
        known: Vec<String>,
    },
    /// Something has that name but cannot be used here.
    #[error("the environment {name:?} cannot be used: {reason}")]
    Unavailable {
        /// Its name.
        name: String,
        /// Why, and what helps.
        reason: String,
    },
}

/// All environments by name, in a stable order: the bundled presets, then the others by name.
///
/// Making one reads `metadata.json` files but starts no program; an environment is resolved when it
/// is first asked for, once, and stays as it was then.
#[derive(Debug)]
pub struct Catalog {
    sources: Sources,
    slots: Vec<Slot>,
    skipped: Vec<Skipped>,
}

#[derive(Debug)]
struct Slot {
    name: String,
    /// `None`: a bundled preset.
    artifact: Option<Artifact>,
    resolved: OnceLock<Result<Arc<Environment>, String>>,
}

/// One environment of the catalog, resolved.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a str,
    /// The environment, or why it cannot be used.
    pub environment: Result<Arc<Environment>, &'a str>,
}

impl Catalog {
    /// Finds the names of all environments.
    #[must_use]
    pub fn load(sources: Sources) -> Self {
        let slot = |name: &str, artifact| Slot {
            name: name.to_owned(),
            artifact,
            resolved: OnceLock::new(),
        };
        let mut slots: Vec<Slot> = preset::names().map(|name| slot(name, None)).collect();
        let bundled = slots.len();
        let found = sources.artifacts.as_ref().map(|dir| artifact::find(dir, &sources));
        let (found, mut skipped) = found.unwrap_or_default();
        for artifact in found {
            let name = artifact.name().to_owned();
            match slots.iter_mut().find(|slot| slot.name == name) {
                None => slots.push(slot(&name, Some(artifact))),
                Some(slot) => match &slot.artifact {
                    // Custom names override presets.
                    None => slot.artifact = Some(artifact),
                    Some(first) => skipped.push(twice(&artifact, first)),
                },
            }
        }
        slots[bundled..].sort_by(|a, b| a.name.cmp(&b.name));
        Self { sources, slots, skipped }
    }

    /// All names, in a stable order; also of environments that cannot be used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// The environment called `name`. The first time, this may run a program for some seconds (a
    /// shim, `ldd`, `nix-store`); never for a program below `/usr`.
    ///
    /// # Errors
    /// Both of [`CatalogError`].
    pub fn get(&self, name: &str) -> Result<Arc<Environment>, CatalogError> {
        let Some(slot) = self.slots.iter().find(|slot| slot.name == name) else {
            let known = self.names().map(str::to_owned).collect();
            return Err(CatalogError::Unknown { name: name.to_owned(), known });
        };
        let unavailable = |reason: &String| CatalogError::Unavailable {
            name: name.to_owned(),
            reason: reason.clone(),
        };
        slot.resolve(&self.sources).as_ref().map(Arc::clone).map_err(unavailable)
    }

    /// All environments, resolved.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.slots.iter().map(|slot| Entry {
            name: &slot.name,
            environment: slot
                .resolve(&self.sources)
                .as_ref()
                .map(Arc::clone)
                .map_err(String::as_str),
        })
    }

    /// Artifacts that are not offered; to be logged.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

impl Slot {
    fn resolve(&self, sources: &Sources) -> &Result<Arc<Environment>, String> {
        self.resolved.get_or_init(|| {
            let environment = match &self.artifact {
                Some(artifact) => artifact.resolve(sources).map_err(|error| error.to_string()),
                None => from_preset(&self.name, sources),
            };
            environment.map(Arc::new)
        })
    }
}

fn from_preset(name: &str, sources: &Sources) -> Result<Environment, String> {
    let preset = preset::bundled(name).ok_or_else(|| format!("no preset is called {name}"))?;
    let preset = preset.map_err(|error| error.to_string())?;
    host::resolve(&preset, sources).map_err(|error| error.to_string())
}

fn twice(second: &Artifact, first: &Artifact) -> Skipped {
    let path = second.path().to_owned();
    let reason = format!(
        "{}: the name {:?} is taken by {}",
        path.display(),
        second.name(),
        first.path().display()
    );
    Skipped { path, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sources() -> Sources {
        Sources { path: std::env::var_os("PATH"), ..Sources::default() }
    }

    #[test]
    fn presets_come_first_and_unknown_names_are_answered_with_the_known() {
        let catalog = Catalog::load(sources());
        assert_eq!(catalog.names().collect::<Vec<_>>(), ["shell", "python", "node"]);
        assert_eq!(
            catalog.get("ruby").expect_err("unknown").to_string(),
            "there is no environment \"ruby\"; the environments are shell, python, node"
        );
    }

    #[test]
    fn an_environment_is_resolved_once() {
        let catalog = Catalog::load(sources());
        let first = catalog.get("shell").expect("shell");
        assert!(Arc::ptr_eq(&first, &catalog.get("shell").expect("shell")));
    }

    /// What a cold start pays. The bound is loose for a debug build on a busy machine.
    #[test]
    fn the_shell_is_resolved_in_a_blink() {
        let best = (0..20).map(|_| {
            let start = Instant::now();
            Catalog::load(sources()).get("shell").expect("shell");
            start.elapsed()
        });
        let best = best.min().expect("twenty");
        eprintln!("best of 20: {best:?}");
        assert!(best.as_micros() < 5000, "{best:?}");
    }
}
