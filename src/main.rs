//! `nix-sandbox-mcp`: the only room that names every choice.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::{getegid, geteuid};
use nix_sandbox::audit::Audit;
use nix_sandbox::backend::Backend;
use nix_sandbox::backend::jail::{self, Jail};
use nix_sandbox::backend::native::Native;
use nix_sandbox::cli::{self, Examination, House, Listed};
use nix_sandbox::doctor::{self, Wanted};
use nix_sandbox::engine::cgroup::{Cgroups, Scope};
use nix_sandbox::engine::sources::Sources;
use nix_sandbox::engine::{Launcher, launcher};
use nix_sandbox::environment::catalog::Catalog;
use nix_sandbox::log;
use nix_sandbox::mcp;
use nix_sandbox::outputs::Outputs;
use nix_sandbox::plan::{Ids, Wall};
use nix_sandbox::planner::Ground;
use nix_sandbox::runner::Runner;
use nix_sandbox::settings::{self, Settings};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: the launcher of a server is this program once more.
    if arguments.get(1).is_some_and(|first| first == launcher::ARGUMENT) {
        let ids: Vec<String> =
            arguments[2..].iter().map(|id| id.to_string_lossy().into_owned()).collect();
        return ExitCode::from(u8::try_from(launcher::main(&ids)).unwrap_or(1));
    }
    if arguments.get(1).is_some_and(|first| first == jail::ARGUMENT) {
        return ExitCode::from(u8::try_from(jail::jailer::main()).unwrap_or(1));
    }
    cli::main(arguments, &Real)
}

/// The engine, the catalog and the settings of this process, put together.
struct Real;

impl House for Real {
    fn serve(&self) -> Result<(), String> {
        let settings = load(None)?;
        log::to_stderr(settings.log);
        let outside = outside(&settings);
        if let Err(error) = launcher::allow_open_files() {
            tracing::warn!(%error, "sandboxes may use up what descriptors can be on their way");
        }
        // All before any thread exists, and the cgroup first: what is started lives where we do.
        let cgroups = Cgroups::find(outside, Scope::Enter);
        let (backend, outputs): (Box<dyn Backend>, _) = match choice(&settings)? {
            Choice::Engine => {
                let sources = Sources::default();
                sources.prepare(outside.uid).map_err(|error| error.to_string())?;
                let (launcher, outputs) = launcher(outside)?;
                let native = Native::new(launcher, sources, cgroups).with_pool(settings.pool);
                (Box::new(native), outputs)
            }
            Choice::Jail(jail) => (Box::new(jail.with_cgroups(cgroups)), None),
        };
        let runner = runner(&settings, backend)?.with_results(outputs);
        let Settings { max_runs: runs, structured, .. } = settings;
        let options = mcp::Options { runs, structured };
        for skipped in runner.catalog().skipped() {
            tracing::warn!(path = ?skipped.path, reason = %skipped.reason, "artifact skipped");
        }
        mcp::serve(Arc::new(runner), options).map_err(|error| error.to_string())
    }

    fn runner(&self, project: Option<PathBuf>) -> Result<Runner, String> {
        let settings = load(project.as_deref())?;
        // One run is not worth a new scope, unless it must have a cgroup.
        let scope =
            if settings.require.contains(&Wall::Cgroup) { Scope::Enter } else { Scope::Never };
        let cgroups = Cgroups::find(outside(&settings), scope);
        log::to_stderr(settings.log);
        let backend: Box<dyn Backend> = match choice(&settings)? {
            Choice::Engine => {
                let launcher = Launcher::direct().map_err(|error| error.to_string())?;
                Box::new(Native::new(launcher, Sources::default(), cgroups).with_pool(0))
            }
            Choice::Jail(jail) => Box::new(jail.with_cgroups(cgroups)),
        };
        runner(&settings, backend)
    }

    fn environments(&self) -> Result<Vec<Listed>, String> {
        let catalog = Catalog::load(load(None)?.sources);
        for skipped in catalog.skipped() {
            cli::complain(&format!("skipped {}: {}", skipped.path.display(), skipped.reason));
        }
        let listed = catalog
            .entries()
            .map(|entry| Listed { name: entry.name.to_owned(), environment: entry.environment });
        Ok(listed.collect())
    }

    fn doctor(&self) -> Result<Examination, String> {
        let settings = load(None)?;
        let ground = settings.ground();
        let report = doctor::examine(&Wanted {
            outside: outside(&settings),
            proc: ground.proc,
            require: ground.require,
            instead: matches!(settings.backend, settings::Backend::Jail).then_some("bubblewrap"),
            scope: Scope::Enter,
        });
        Ok(Examination {
            exit_code: report.exit_code(),
            text: report.to_text(),
            json: serde_json::to_value(&report).map_err(|error| error.to_string())?,
        })
    }

    fn apparmor_profile(&self) -> String {
        let program = std::env::current_exe();
        doctor::apparmor_profile(
            program.as_deref().unwrap_or(Path::new("/usr/bin/nix-sandbox-mcp")),
        )
    }

    fn settings(&self) -> String {
        settings::help()
    }
}

/// The settings of this process; `project` stands for `PROJECT_DIR`.
fn load(project: Option<&Path>) -> Result<Settings, String> {
    let lookup = |name: &str| match (name, project) {
        ("PROJECT_DIR", Some(project)) => Some(project.into()),
        _ => std::env::var_os(name),
    };
    Settings::load(&lookup, geteuid().as_raw()).map_err(|error| error.to_string())
}

fn outside(settings: &Settings) -> Ids {
    settings.outside(Ids { uid: geteuid().as_raw(), gid: getegid().as_raw() })
}

/// A launcher process; with room for long outputs, unless this host refuses that.
fn launcher(outside: Ids) -> Result<(Launcher, Option<Outputs>), String> {
    match Launcher::spawn_with_outputs(outside) {
        Ok((launcher, directory)) => Ok((launcher, Some(Outputs::new(directory, outside)))),
        Err(error) => {
            tracing::warn!(%error, "long output is not kept at /outputs");
            let launcher = Launcher::spawn(outside).map_err(|error| error.to_string())?;
            Ok((launcher, None))
        }
    }
}

/// Who makes sandboxes here.
enum Choice {
    Engine,
    Jail(Box<Jail>),
}

/// What the settings say; with `auto` bubblewrap only where the engine cannot run.
fn choice(settings: &Settings) -> Result<Choice, String> {
    let jail = || Jail::find(settings.sources.candidates("bwrap"));
    match settings.backend {
        settings::Backend::Engine => Ok(Choice::Engine),
        settings::Backend::Jail => {
            jail().map(|jail| Choice::Jail(Box::new(jail))).map_err(|error| error.to_string())
        }
        settings::Backend::Auto => {
            let mut ground = settings.ground();
            // It says nothing of the kernel.
            ground.require.remove(&Wall::Cgroup);
            let Ground { proc, require, .. } = ground;
            let wanted = Wanted { proc, require, ..Wanted::of(outside(settings)) };
            let Err(reason) = doctor::try_engine(&wanted) else { return Ok(Choice::Engine) };
            tracing::warn!(%reason, "the engine cannot run here; bubblewrap stands in for it");
            let neither = |error| format!("the engine cannot run here ({reason}), and {error}");
            let jail = jail().map_err(neither)?;
            Ok(Choice::Jail(Box::new(jail.in_place_of_the_engine(reason))))
        }
    }
}

fn runner(settings: &Settings, backend: Box<dyn Backend>) -> Result<Runner, String> {
    let catalog = Catalog::load(settings.sources.clone());
    let runner = Runner::new(catalog, settings.ground(), outside(settings), backend);
    Ok(runner.with_sessions(settings.sessions).with_audit(audit(settings)?))
}

/// Opened at the start: who is root now may not be when the first run has ended.
fn audit(settings: &Settings) -> Result<Option<Audit>, String> {
    let Some(rules) = &settings.audit else { return Ok(None) };
    let failed = |error| format!("NIX_SANDBOX_AUDIT: cannot append to {:?}: {error}", rules.file);
    Audit::open(rules).map(Some).map_err(failed)
}
