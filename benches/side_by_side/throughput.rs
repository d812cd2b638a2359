//! Many at once, and many one after the other.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::contestants::{self, Contestant, POOL, Servers, bubblewrap, contestant, plan};
use crate::floor::{self, Net};
use crate::workplace::Workplace;

/// Launches per second of one contestant, with so many at once.
pub(crate) struct Rate {
    pub(crate) name: String,
    pub(crate) at_once: usize,
    pub(crate) per_second: f64,
}

/// Repetitions of each, in turn.
const TURNS: usize = 5;

/// At 1, 2 and 8: a burst no longer than what stands ready, and sustained.
pub(crate) fn measure(workplace: &Workplace, servers: &Servers, rounds: usize) -> Vec<Rate> {
    let plan = plan(workplace, 10);
    let mut rates = Vec::new();
    for at_once in [1, 2, 8] {
        let mut measured: Vec<(&str, usize, Vec<f64>)> = vec![
            ("bubblewrap", rounds, Vec::new()),
            ("floor", rounds, Vec::new()),
            ("floor, a network each", rounds, Vec::new()),
            ("server, template", rounds, Vec::new()),
            ("server, blank, sustained", rounds, Vec::new()),
            ("server, blank, burst", POOL, Vec::new()),
        ];
        for turn in 0..TURNS {
            eprint!("\r{at_once} at once: turn {turn} of {TURNS}   ");
            for (name, count, rates) in &mut measured {
                let one = || -> Contestant<'_> {
                    match *name {
                        "bubblewrap" => contestant("", bubblewrap(workplace, 10)),
                        "floor" => contestant("", floor::run(workplace, Net::Shared)),
                        "floor, a network each" => contestant("", floor::run(workplace, Net::Own)),
                        "server, template" => {
                            contestant("", || drop(contestants::launch(&servers.template, &plan)))
                        }
                        _ => contestant("", || drop(contestants::launch(&servers.blank, &plan))),
                    }
                };
                if name.ends_with("burst") {
                    servers.blank.wait_until_filled();
                }
                rates.push(rate(at_once, *count, &one));
            }
        }
        eprintln!();
        rates.extend(measured.into_iter().map(|(name, _, mut rates)| {
            rates.sort_by(f64::total_cmp);
            Rate { name: name.to_owned(), at_once, per_second: rates[rates.len() / 2] }
        }));
    }
    rates
}

fn rate<'a>(at_once: usize, count: usize, one: &(dyn Fn() -> Contestant<'a> + Sync)) -> f64 {
    let left = Mutex::new(count);
    let mut all: Vec<Contestant<'a>> = (0..at_once).map(|_| one()).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for one in &mut all {
            scope.spawn(|| {
                while take(&left) {
                    (one.run)();
                }
            });
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let count = count as f64;
    count / begun.elapsed().as_secs_f64()
}

fn take(left: &Mutex<usize>) -> bool {
    let mut left = left.lock().expect("the count");
    let some = *left > 0;
    *left -= usize::from(some);
    some
}

/// What many launches one after the other leave behind.
pub(crate) struct Endurance {
    pub(crate) launches: usize,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    /// Descriptors, threads and resident KiB of this process, before and after.
    pub(crate) before: [u64; 3],
    pub(crate) after: [u64; 3],
}

pub(crate) fn endure(workplace: &Workplace, servers: &Servers, launches: usize) -> Endurance {
    let plan = plan(workplace, 10);
    let tenth = launches / 10;
    let mut tenths = Vec::new();
    // Once, so that what is made at the first use is there.
    drop(contestants::launch(&servers.template, &plan));
    let before = crate::memory::own();
    for part in 0..10 {
        eprint!("\r{launches} launches: {part}0 %   ");
        let begun = Instant::now();
        (0..tenth).for_each(|_| drop(contestants::launch(&servers.template, &plan)));
        tenths.push(begun.elapsed() / u32::try_from(tenth.max(1)).unwrap_or(1));
    }
    eprintln!();
    let after = crate::memory::own();
    Endurance { launches, first: tenths[0], last: tenths[9], before, after }
}
