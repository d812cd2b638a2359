//! temporary
use nix_sandbox::backend::native::Native;
use nix_sandbox::engine::sources::Sources;
use nix_sandbox::engine::{Launcher, launcher};
use nix_sandbox::environment::catalog::Catalog;
use nix_sandbox::plan::Ids;
use nix_sandbox::runner::Runner;
use nix_sandbox::settings::Settings;
use std::process::ExitCode;
use std::sync::Arc;
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == launcher::ARGUMENT) {
        return ExitCode::from(u8::try_from(launcher::main(&args[1..])).unwrap_or(1));
    }
    let uid = nix::unistd::getuid().as_raw();
    let settings = Settings::load(&|n| std::env::var_os(n), uid).expect("settings");
    let outside = settings.outside(Ids { uid, gid: nix::unistd::getgid().as_raw() });
    let sources = Sources::default();
    sources.prepare(outside.uid).expect("prep");
    let launcher = Launcher::spawn(outside).expect("spawn");
    let runner = Runner::new(
        Catalog::load(settings.sources.clone()),
        settings.ground(),
        outside,
        Box::new(Native::new(launcher, sources)),
    );
    nix_sandbox::mcp::serve(Arc::new(runner), settings.max_runs).expect("serve");
    ExitCode::SUCCESS
}
