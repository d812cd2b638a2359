//! temporary
use nix_sandbox::{
    backend::native::Native,
    engine::{Launcher, launcher, sources::Sources},
    environment::catalog::Catalog,
    plan::{Identity, Ids},
    planner::Ground,
    request::{Request, Work},
    runner::{Cancel, Runner, Streams},
};
use std::os::fd::AsFd;
use std::process::ExitCode;
fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == launcher::ARGUMENT) {
        return ExitCode::from(u8::try_from(launcher::main(&args[1..])).unwrap_or(1));
    }
    let uid = nix::unistd::getuid().as_raw();
    let outside = if uid == 0 {
        Identity::FALLBACK_OUTSIDE
    } else {
        Ids { uid, gid: nix::unistd::getgid().as_raw() }
    };
    let sources = Sources::default();
    let server = args.first().is_some_and(|a| a == "--via");
    let launcher = if server {
        args.remove(0);
        sources.prepare(outside.uid).expect("prep");
        Launcher::spawn(outside).expect("spawn")
    } else {
        Launcher::direct().expect("direct")
    };
    let runner = Runner::new(
        Catalog::load(settings.sources.clone()),
        settings.ground(),
        outside,
        Box::new(Native::new(launcher, sources)),
    );
    let capture = args.first().is_some_and(|a| a == "--json");
    if capture {
        args.remove(0);
    }
    let mut env = "shell".to_string();
    let code = args.first().is_some_and(|a| a == "--code");
    if code {
        args.remove(0);
        env = args.remove(0);
    }
    let work = if code {
        Work::Code(args[0].clone().into_bytes())
    } else {
        Work::Command(args.into_iter().map(Into::into).collect())
    };
    let dup = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("dup");
    let streams = if capture || code {
        Streams::Capture
    } else {
        Streams::Through {
            stdin: dup(std::io::stdin().as_fd()),
            stdout: dup(std::io::stdout().as_fd()),
            stderr: dup(std::io::stderr().as_fd()),
        }
    };
    match runner.run(&Request::new(env, work), streams, &Cancel::new().expect("cancel")) {
        Ok(o) => {
            if capture || code {
                eprintln!(
                    "{:?} {:?} {}",
                    o.ending,
                    o.usage,
                    String::from_utf8_lossy(&o.stdout.to_bytes())
                );
                eprintln!("stderr {}", String::from_utf8_lossy(&o.stderr.to_bytes()));
                for w in &o.enforced.0 {
                    eprintln!("  {w:?}");
                }
            }
            ExitCode::from(o.ending.exit_code())
        }
        Err(e) => {
            eprintln!("ERR {e}");
            ExitCode::from(125)
        }
    }
}
