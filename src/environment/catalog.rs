//! All environments by name.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::artifact::{self, Artifact, Skipped};
use super::flake::{Build, Cancelled, State};
use super::{Environment, Named, Sources, host, preset};

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
/// is first asked for, once, and stays as it was then. Those that Nix builds at the start are ready
/// or not when they are.
#[derive(Debug)]
pub struct Catalog {
    sources: Sources,
    slots: Vec<Slot>,
    skipped: Vec<Skipped>,
}

#[derive(Debug)]
struct Slot {
    name: String,
    kind: Kind,
    resolved: OnceLock<Result<Arc<Environment>, String>>,
}

/// Where an environment comes from.
#[derive(Debug)]
enum Kind {
    Preset,
    Artifact(Box<Artifact>),
    /// One that the settings name.
    Named(Named),
    Flake(Arc<Build>),
}

/// One environment of the catalog.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a str,
    /// The environment, or why it cannot be used.
    pub environment: Result<Arc<Environment>, Absent>,
    /// Whether Nix builds it at the start.
    pub built_at_start: bool,
}

/// Why an environment is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// Nix has not been asked for it yet: that is done at its first use.
    NotBuilt,
    /// Nix works on it.
    Building,
    /// It could not be built, or found on this host.
    Failed(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => f.write_str("not built yet"),
            Self::Building => f.write_str("building"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
        }
    }
}

impl Catalog {
    /// Finds the names of all environments. Of two of one name the first counts: those that Nix
    /// builds at the start, the directory of artifacts, those that came with the program
    /// (`NIX_SANDBOX_METADATA`), the presets.
    #[must_use]
    pub fn load(sources: Sources) -> Self {
        let slot = |name: String, kind| Slot { name, kind, resolved: OnceLock::new() };
        let mut slots: Vec<Slot> =
            preset::names().map(|name| slot(name.to_owned(), Kind::Preset)).collect();
        let bundled = slots.len();
        let found = sources.artifacts.as_ref().map(|dir| artifact::find(dir, &sources));
        let (found, mut skipped) = found.unwrap_or_default();
        let named = sources.named.iter().cloned().map(|it| (it.name.clone(), Kind::Named(it)));
        let flakes = sources.flakes.iter().filter_map(|flake| {
            // Without a descriptor left nothing else would work either.
            let build = Build::new(flake.clone()).ok()?;
            Some((flake.name().to_owned(), Kind::Flake(Arc::new(build))))
        });
        let found =
            found.into_iter().map(|it| (it.name().to_owned(), Kind::Artifact(Box::new(it))));
        for (name, kind) in flakes.chain(found).chain(named) {
            match slots.iter_mut().find(|slot| slot.name == name) {
                None => slots.push(slot(name, kind)),
                // Custom names override presets.
                Some(slot) if matches!(slot.kind, Kind::Preset) => slot.kind = kind,
                // And what came with the program.
                Some(_) if matches!(kind, Kind::Named(_)) => {}
                Some(slot) => skipped.push(twice(&name, &kind, &slot.kind)),
            }
        }
        slots[bundled..].sort_by(|a, b| a.name.cmp(&b.name));
        Self { sources, slots, skipped }
    }

    /// All names, in a stable order; also of environments that cannot be used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Has Nix begin with everything that it shall build, on threads of their own.
    pub fn begin(&self) {
        self.builds().for_each(|build| build.begin(&self.sources));
    }

    /// Ends what Nix still works on.
    pub fn stop(&self) {
        self.builds().for_each(|build| build.stop());
    }

    fn builds(&self) -> impl Iterator<Item = &Arc<Build>> {
        self.slots.iter().filter_map(|slot| match &slot.kind {
            Kind::Flake(build) => Some(build),
            _ => None,
        })
    }

    /// Waits until Nix has built the environment `name`, if that is what it comes from, and builds it
    /// here if nobody has begun. Meanwhile `tell` gets what Nix said last.
    ///
    /// # Errors
    /// `cancel` became readable before.
    pub fn wait(
        &self,
        name: &str,
        cancel: Option<BorrowedFd<'_>>,
        tell: &dyn Fn(&str),
    ) -> Result<(), Cancelled> {
        match self.slots.iter().find(|slot| slot.name == name).map(|slot| &slot.kind) {
            Some(Kind::Flake(build)) => build.wait(&self.sources, cancel, tell).map(drop),
            _ => Ok(()),
        }
    }

    /// The environment called `name`. The first time, this may run a program for some seconds (a
    /// shim, `ldd`, `nix-store`); never for a program below `/usr`. What Nix builds is waited for.
    ///
    /// # Errors
    /// Both of [`CatalogError`].
    pub fn get(&self, name: &str) -> Result<Arc<Environment>, CatalogError> {
        let Some(slot) = self.slots.iter().find(|slot| slot.name == name) else {
            let known = self.names().map(str::to_owned).collect();
            return Err(CatalogError::Unknown { name: name.to_owned(), known });
        };
        if let Kind::Flake(build) = &slot.kind {
            let _ = build.wait(&self.sources, None, &|_| {});
        }
        slot.look(&self.sources).map_err(|absent| CatalogError::Unavailable {
            name: name.to_owned(),
            reason: match absent {
                Absent::Failed(reason) => reason,
                other => other.to_string(),
            },
        })
    }

    /// The environment called `name`, if it can be used by now. Waits for nothing that Nix does.
    #[must_use]
    pub fn look(&self, name: &str) -> Option<Arc<Environment>> {
        self.slots.iter().find(|slot| slot.name == name)?.look(&self.sources).ok()
    }

    /// All environments, resolved as far as they are built. Waits for nothing that Nix does.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.slots.iter().map(|slot| Entry {
            name: &slot.name,
            environment: slot.look(&self.sources),
            built_at_start: matches!(slot.kind, Kind::Flake(_)),
        })
    }

    /// Artifacts that are not offered; to be logged.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

impl Slot {
    fn look(&self, sources: &Sources) -> Result<Arc<Environment>, Absent> {
        if let Kind::Flake(build) = &self.kind {
            return match build.state(sources) {
                State::Waiting => Err(Absent::NotBuilt),
                State::Building(_) => Err(Absent::Building),
                State::Ready(environment) => Ok(environment),
                State::Failed(reason) => Err(Absent::Failed(reason)),
            };
        }
        let resolved = self.resolved.get_or_init(|| {
            let environment = match &self.kind {
                Kind::Artifact(artifact) => {
                    artifact.resolve(sources).map_err(|error| error.to_string())
                }
                Kind::Named(named) => from_named(named, sources),
                Kind::Preset | Kind::Flake(_) => from_preset(&self.name, sources),
            };
            environment.map(Arc::new)
        });
        resolved.clone().map_err(Absent::Failed)
    }
}

fn from_named(named: &Named, sources: &Sources) -> Result<Environment, String> {
    let artifact = Artifact::read(&named.artifact, sources);
    let environment = artifact.and_then(|artifact| artifact.resolve(sources));
    let mut environment = environment.map_err(|error| error.to_string())?;
    environment.name.clone_from(&named.name);
    environment.limits = named.limits.over(environment.limits);
    Ok(environment)
}

fn from_preset(name: &str, sources: &Sources) -> Result<Environment, String> {
    let preset = preset::bundled(name).ok_or_else(|| format!("no preset is called {name}"))?;
    let preset = preset.map_err(|error| error.to_string())?;
    let environment = host::resolve(&preset, sources).map_err(|error| error.to_string())?;
    for reason in &environment.passed_over {
        tracing::warn!(environment = name, reason, "interpreter passed over");
    }
    Ok(environment)
}

fn twice(name: &str, second: &Kind, first: &Kind) -> Skipped {
    let path = |kind: &Kind| match kind {
        Kind::Artifact(artifact) => artifact.path().to_owned(),
        Kind::Named(named) => named.artifact.clone(),
        Kind::Flake(build) => PathBuf::from(build.flake().reference()),
        Kind::Preset => PathBuf::from("a preset"),
    };
    let (second, first) = (path(second), path(first));
    let reason = format!("{}: the name {name:?} is taken by {}", second.display(), first.display());
    Skipped { path: second, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_came_with_the_program_gives_way_to_what_the_user_names() {
        let artifact = PathBuf::from("/no/such/artifact");
        let named = Named {
            name: "shell".to_owned(),
            artifact,
            limits: crate::plan::LimitOverrides::default(),
        };
        let with =
            |flakes| Catalog::load(Sources { named: vec![named.clone()], flakes, ..sources() });
        let reason = with(Vec::new()).get("shell").expect_err("not there").to_string();
        assert!(reason.contains("/no/such/artifact"), "{reason}");
        let flake = "path:/etc#shell".parse().expect("a reference");
        let catalog = with(vec![flake]);
        assert!(catalog.entries().any(|entry| entry.name == "shell" && entry.built_at_start));
        assert!(catalog.skipped().is_empty(), "{:?}", catalog.skipped());
    }
}
