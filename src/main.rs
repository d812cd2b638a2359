//! temporary: the lead writes this room at integration
use nix_sandbox::{
    backend::native::Native,
    cli::{self, Diagnosis, House, Listed},
    engine::{Launcher, launcher, sources::Sources},
    environment::catalog::Catalog,
    plan::{Identity, Ids},
    planner::Ground,
    runner::Runner,
};
use std::path::PathBuf;
use std::process::ExitCode;

struct Temporary;

impl House for Temporary {
    fn serve(&self) -> Result<(), String> {
        Err("this build serves no MCP".to_owned())
    }

    fn runner(&self, _project: Option<PathBuf>) -> Result<Runner, String> {
        let uid = nix::unistd::getuid().as_raw();
        let outside = match uid {
            0 => Identity::FALLBACK_OUTSIDE,
            _ => Ids { uid, gid: nix::unistd::getgid().as_raw() },
        };
        let launcher = Launcher::direct().map_err(|error| error.to_string())?;
        let backend = Box::new(Native::new(launcher, Sources::default()));
        Ok(Runner::new(Catalog, Ground::default(), outside, backend))
    }

    fn environments(&self) -> Result<Vec<Listed>, String> {
        let names = ["shell", "python", "node"];
        let listed = names.map(|name| Listed {
            name: name.to_owned(),
            environment: Catalog.get(name).ok_or_else(|| "not found".to_owned()),
        });
        Ok(listed.into())
    }

    fn doctor(&self) -> Result<Diagnosis, String> {
        Err("this build has no doctor".to_owned())
    }

    fn settings(&self) -> String {
        String::new()
    }
}

fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).filter_map(|a| a.into_string().ok()).collect();
    if args.first().is_some_and(|a| a == launcher::ARGUMENT) {
        return ExitCode::from(u8::try_from(launcher::main(&args[1..])).unwrap_or(1));
    }
    cli::main(std::env::args_os(), &Temporary)
}
