//! What runs in the sandbox: each uses one thing until it is stopped, and says what it met.

use std::fs::{self, File};
use std::io::{Error, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::time::TimeValLike;
use nix::unistd::{ForkResult, pause};
use nix_sandbox::kernel;

const MIB: usize = 1 << 20;

pub(crate) fn main(words: &[String]) -> ExitCode {
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
    let text = |at: usize| words.get(at).map_or("", String::as_str);
    match text(0) {
        "hold" => drop(hold(number(1))),
        "hold-in-child" => in_child(number(1)),
        "share" => share(number(1), number(2)),
        "fork" => fork(number(1)),
        "thread" => thread(number(1)),
        "spin" => spin(Duration::from_millis(number(1) as u64)),
        "fill" => words[1..].iter().for_each(|path| println!("{path}: {}", fill(path))),
        "fill-and-stay" => {
            words[1..].iter().for_each(|path| println!("{path}: {}", fill(path)));
            pause();
        }
        "files" => files(text(1)),
        "memfd" => memfd(number(1)),
        "kill-self" => raise(Signal::SIGKILL).expect("raise"),
        other => panic!("no probe is called {other}"),
    }
    ExitCode::SUCCESS
}

/// Takes and writes so many MiB.
fn hold(mib: usize) -> Vec<Vec<u8>> {
    let held = (0..mib).map(|_| vec![1; MIB]).collect();
    println!("held {mib} MiB");
    held
}

/// Likewise in a child, for whose end it waits.
fn in_child(mib: usize) {
    if let ForkResult::Child = kernel::fork().expect("fork") {
        hold(mib);
        kernel::exit_now(0);
    }
    println!("{:?}", nix::sys::wait::wait());
}

/// Takes so many MiB and shares them with children: much for each, little for all.
fn share(mib: usize, children: usize) {
    let held = hold(mib);
    for _ in 0..children {
        if let ForkResult::Child = kernel::fork().expect("fork") {
            pause();
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    println!("shared {} MiB", held.len());
}

/// Forks until it may not, at most so often.
fn fork(most: usize) {
    for count in 0..most {
        match kernel::fork() {
            Ok(ForkResult::Child) => pause(),
            Ok(ForkResult::Parent { .. }) => {}
            Err(errno) => return println!("forked {count}, then {errno:?}"),
        }
    }
    println!("forked {most}");
}

fn thread(most: usize) {
    for count in 0..most {
        let made = std::thread::Builder::new().stack_size(32 << 10).spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
        });
        if let Err(error) = made {
            return println!("started {count}, then {:?}", errno(&error));
        }
    }
    println!("started {most}");
}

/// Keeps a processor busy; how many milliseconds of it it got.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("usage");
    println!("{}", (usage.user_time() + usage.system_time()).num_milliseconds());
}

/// Writes a file until it may not.
fn fill(path: &str) -> String {
    let mut file = File::create(path).expect("create");
    let chunk = vec![1; MIB];
    loop {
        if let Err(error) = file.write_all(&chunk) {
            return format!(
                "{} MiB, then {:?}",
                file.metadata().expect("stat").len() >> 20,
                errno(&error)
            );
        }
    }
}

/// Makes empty files until it may not.
fn files(directory: &str) {
    for count in 0_u64.. {
        if let Err(error) = File::create(format!("{directory}/{count}")) {
            let there = fs::read_dir(directory).expect("list").count();
            return println!("{there} files, then {:?}", errno(&error));
        }
    }
}

/// One memfd of so many GiB.
fn memfd(gib: usize) {
    let file = File::from(memfd_create(c"probe", MFdFlags::empty()).expect("memfd"));
    // Else the signal that comes with it would be the end.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().expect("block SIGXFSZ");
    match file.set_len((gib as u64) << 30) {
        Ok(()) => println!("made it"),
        Err(error) => println!("{:?}", errno(&error)),
    }
}

fn errno(error: &Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}
