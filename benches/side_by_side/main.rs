//! How long a sandbox takes, ours and others', in one run and interleaved: what disturbs one disturbs
//! all, so the ratios hold where the times do not.
//!
//! `cargo bench --bench side_by_side [-- --rounds N] [--write]`; the program that is measured as the
//! command line and as the server is `NIX_SANDBOX_BIN`, else `target/release/nix-sandbox-mcp`. With
//! `--write` the table goes to `docs/evidence/performance.md`. As an ordinary user: root is slower in
//! some and faster in others. With `--check` it fails where a ratio is out of its generous bound.

mod contestants;
mod floor;
mod mcp;
mod memory;
mod others;
mod report;
mod steps;
mod throughput;
mod workplace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use contestants::Contestant;
use report::Report;
use workplace::Workplace;

#[expect(clippy::print_stdout, reason = "the table is the output")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // The launcher of the server that is measured within this process is this program once more.
    if arguments.get(1).is_some_and(|first| first == nix_sandbox::engine::launcher::ARGUMENT) {
        let code = nix_sandbox::engine::launcher::main(&arguments[2..]);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    if arguments.get(1).is_some_and(|first| first == floor::ARGUMENT) {
        floor::main(&arguments[2..]);
        return ExitCode::SUCCESS;
    }
    let after = |flag| arguments.iter().skip_while(|word| *word != flag).nth(1);
    let rounds = after("--rounds").and_then(|count| count.parse().ok()).unwrap_or(100);
    let workplace = Workplace::new();
    let mut report = Report::new(rounds);
    // Every launcher before the first thread.
    let servers = contestants::servers();
    for paths in [10, 100, 1000] {
        let few = if paths == 1000 { rounds / 10 + 5 } else { rounds };
        let mut all = contestants::with_closure(&workplace, &servers, paths);
        report.latency(paths, measure(&format!("{paths} paths"), few, &mut all));
    }
    report.steps(&steps::measure(&workplace, &servers, rounds));
    report.throughput(&throughput::measure(&workplace, &servers, rounds));
    report.mcp(measure("MCP", rounds, &mut mcp::contestants(&workplace)));
    report.memory(&memory::measure(&workplace, &servers));
    report.endurance(&throughput::endure(&workplace, &servers, rounds * 50));
    println!("{report}");
    if arguments.iter().any(|word| word == "--write") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/performance.md");
        std::fs::write(path, report.to_string()).expect("docs/evidence");
    }
    let out = report.out_of_bounds();
    if arguments.iter().any(|word| word == "--check") && !out.is_empty() {
        eprintln!("out of bounds: {}", out.join("; "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Rounds of each, in turn; the first three do not count.
fn measure(what: &str, rounds: usize, all: &mut [Contestant<'_>]) -> Vec<(String, Vec<Duration>)> {
    let mut times: Vec<(String, Vec<Duration>)> =
        all.iter().map(|one| (one.name.clone(), Vec::with_capacity(rounds))).collect();
    for round in 0..rounds + 3 {
        if round % 10 == 0 {
            eprint!("\r{what}: round {round} of {rounds}   ");
        }
        for (one, (_, times)) in all.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            (one.run)();
            let took = begun.elapsed();
            (one.settle)();
            if round >= 3 {
                times.push(took);
            }
        }
    }
    eprintln!();
    times
}
