//! What the server asks of the floor below, and the runner's answers.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::environment::catalog::{Absent, Entry};
use crate::outcome::Outcome;
use crate::outputs::Outputs;
use crate::plan::Limits;
use crate::planner::MOST_TIME;
use crate::request::{Draft, Request};
use crate::runner::{Cancel, Newest, RunError, Runner, Streams};

/// What the server needs of the floor below.
pub trait Door: Send + Sync + 'static {
    /// Runs one request to its end, its streams captured; what they say meanwhile is shown in
    /// `newest`. Blocks; many threads call at once.
    ///
    /// # Errors
    /// Never for what the code does; see [`RunError`].
    fn run(
        &self,
        request: &Request,
        cancel: &Cancel,
        newest: Option<Newest>,
    ) -> Result<Outcome, RunError>;

    /// Notes a request that came to nothing before it could be run, and why, in one sentence.
    fn refuse(&self, _draft: &Draft<'_>, _why: &str) {}

    /// Begins with what takes long, such as environments that Nix builds, and does not wait for it.
    /// Called once a client is there; then often.
    fn begin(&self) {}

    /// Ends what [`Door::begin`] began.
    fn stop(&self) {}

    /// What an environment was made of, if Nix made it: an object for programs.
    fn receipt(&self, _environment: &str) -> Option<Value> {
        None
    }

    /// The environments, in an order that is the same at every start. What is built meanwhile
    /// changes its description.
    fn environments(&self) -> Vec<Offer>;

    /// What the tool's description may promise.
    fn facts(&self) -> Facts;

    /// Ends sessions whose time is over, mends what has broken down. Called every few seconds on the
    /// thread that serves.
    fn tidy(&self);

    /// Where long output of earlier runs is kept, if it is.
    fn outputs(&self) -> Option<&Outputs> {
        None
    }
}

/// An environment as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its name, the value of `env`.
    pub name: String,
    /// What is in it, in a few words; may be empty. Every model pays for it on every turn.
    pub description: String,
    /// Whether it can run here. If not it is not offered; who asks for it all the same gets the
    /// runner's reason.
    pub available: bool,
}

/// What holds for every run of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Where the sandbox sees the project, read-only; `None` if it is not mounted.
    pub project: Option<PathBuf>,
    /// The wall-clock limit of a call that names none.
    pub timeout: Duration,
    /// The longest wall-clock limit that a call may name.
    pub max_timeout: Duration,
    /// The memory limit, bytes, if there is one.
    pub memory: Option<u64>,
    /// Whether sandboxes can read more of long outputs below `/outputs`.
    pub outputs: bool,
}

impl Door for Runner {
    fn run(
        &self,
        request: &Request,
        cancel: &Cancel,
        newest: Option<Newest>,
    ) -> Result<Outcome, RunError> {
        Self::run(self, request, newest.map_or(Streams::Capture, Streams::Watched), cancel)
    }

    fn refuse(&self, draft: &Draft<'_>, why: &str) {
        Self::refuse(self, draft, why);
    }

    fn begin(&self) {
        self.catalog().begin();
    }

    fn stop(&self) {
        self.catalog().stop();
    }

    fn receipt(&self, environment: &str) -> Option<Value> {
        serde_json::to_value(Self::receipt(self, environment)?).ok()
    }

    fn environments(&self) -> Vec<Offer> {
        self.catalog().entries().map(|entry| offer(&entry)).collect()
    }

    fn tidy(&self) {
        Self::tidy(self);
    }

    fn outputs(&self) -> Option<&Outputs> {
        Self::outputs(self)
    }

    fn facts(&self) -> Facts {
        let ground = self.ground();
        // Environments may differ. What is promised holds in each of them.
        let environments = self.catalog().entries().filter_map(|entry| entry.environment.ok());
        let limits: Vec<Limits> = environments
            .map(|environment| {
                let mut limits = Limits::default();
                // Both were checked when they were read.
                let _ = environment.limits.apply(&mut limits).and(ground.limits.apply(&mut limits));
                limits
            })
            .collect();
        let timeout = limits.iter().map(Limits::time).min();
        let timeout = timeout.unwrap_or_else(|| Limits::default().time());
        Facts {
            project: ground.project.as_ref().map(|(_, at)| at.clone()),
            timeout,
            max_timeout: timeout.max(MOST_TIME),
            memory: limits.iter().map(|limits| limits.memory).min(),
            outputs: ground.outputs,
        }
    }
}

fn offer(entry: &Entry<'_>) -> Offer {
    let (description, available) = match &entry.environment {
        Ok(environment) => (environment.description.clone(), true),
        // A call waits for it.
        Err(Absent::Building | Absent::NotBuilt) => ("building".to_owned(), true),
        Err(absent @ Absent::Failed(_)) if entry.built_at_start => {
            (absent.to_string().chars().take(WHY).collect(), false)
        }
        Err(Absent::Failed(_)) => (String::new(), false),
    };
    Offer { name: entry.name.to_owned(), description, available }
}

/// Characters that are told of why an environment could not be built; a call is told all.
const WHY: usize = 60;
