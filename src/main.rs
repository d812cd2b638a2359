//! temporary: the lead writes this room at integration
use nix_sandbox::backend::native::Native;
use nix_sandbox::cli::{self, Examination, House, Listed};
use nix_sandbox::engine::sources::Sources;
use nix_sandbox::engine::{Launcher, launcher};
use nix_sandbox::environment::catalog::Catalog;
use nix_sandbox::mcp;
use nix_sandbox::plan::Ids;
use nix_sandbox::runner::Runner;
use nix_sandbox::settings::{self, Settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

struct Home;

impl Home {
    fn settings(project: Option<&Path>) -> Result<Settings, String> {
        let lookup = |name: &str| match (name, project) {
            ("PROJECT_DIR", Some(project)) => Some(project.into()),
            _ => std::env::var_os(name),
        };
        Settings::load(&lookup, nix::unistd::geteuid().as_raw()).map_err(|error| error.to_string())
    }

    fn outside(settings: &Settings) -> Ids {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        settings.outside(Ids { uid, gid })
    }

    fn runner(settings: &Settings, launcher: Launcher, sources: Sources) -> Runner {
        Runner::new(
            Catalog::load(settings.sources.clone()),
            settings.ground(),
            Self::outside(settings),
            Box::new(Native::new(launcher, sources)),
        )
    }
}

impl House for Home {
    fn serve(&self) -> Result<(), String> {
        let settings = Self::settings(None)?;
        let sources = Sources::default();
        let outside = Self::outside(&settings);
        sources.prepare(outside.uid).map_err(|error| error.to_string())?;
        let launcher = Launcher::spawn(outside).map_err(|error| error.to_string())?;
        let runner = Self::runner(&settings, launcher, sources);
        mcp::serve(Arc::new(runner), settings.max_runs).map_err(|error| error.to_string())
    }

    fn runner(&self, project: Option<PathBuf>) -> Result<Runner, String> {
        let settings = Self::settings(project.as_deref())?;
        let launcher = Launcher::direct().map_err(|error| error.to_string())?;
        Ok(Self::runner(&settings, launcher, Sources::default()))
    }

    fn environments(&self) -> Result<Vec<Listed>, String> {
        let catalog = Catalog::load(Self::settings(None)?.sources);
        let listed = catalog.entries().map(|entry| Listed {
            name: entry.name.to_owned(),
            environment: entry.environment.map_err(str::to_owned),
        });
        Ok(listed.collect())
    }

    fn doctor(&self) -> Result<Examination, String> {
        Err("this build has no doctor".to_owned())
    }

    fn settings(&self) -> String {
        settings::help()
    }
}

fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).filter_map(|a| a.into_string().ok()).collect();
    if args.first().is_some_and(|a| a == launcher::ARGUMENT) {
        return ExitCode::from(u8::try_from(launcher::main(&args[1..])).unwrap_or(1));
    }
    cli::main(std::env::args_os(), &Home)
}
