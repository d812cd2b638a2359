//! Where the time of a launch goes: what pid 1 measures of its own steps for whoever reads traces.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix_sandbox::backend::native::Native;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::contestants::{Servers, launch, plan};
use crate::workplace::Workplace;

/// Median microseconds of one kind of launch.
pub(crate) struct Steps {
    pub(crate) name: &'static str,
    /// Of each kind of step, in the order in which they are enacted; those of one kind are added up.
    pub(crate) steps: Vec<(String, u64)>,
    /// From the plan to the outcome.
    pub(crate) whole: u64,
}

pub(crate) fn measure(workplace: &Workplace, servers: &Servers, rounds: usize) -> Vec<Steps> {
    let plan = plan(workplace, 10);
    let of = |name, native: &Native| {
        let told = Told::default();
        let mut whole = Vec::new();
        let mut each: Vec<(String, Vec<u64>)> = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            tracing::subscriber::with_default(told.clone(), || drop(launch(native, &plan)));
            whole.push(micros(begun.elapsed()));
            for (step, sum) in told.take() {
                match each.iter_mut().find(|(known, _)| *known == step) {
                    Some((_, all)) => all.push(sum),
                    None => each.push((step, vec![sum])),
                }
            }
        }
        let steps = each.into_iter().map(|(step, all)| (step, median(all))).collect();
        Steps { name, steps, whole: median(whole) }
    };
    vec![of("cold", &servers.cold), of("template", &servers.template)]
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What was told of the launch under way: sums by the name of the step.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(String, u64)>>>);

impl Told {
    fn take(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.0.lock().expect("what was told"))
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("nix_sandbox")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut one = One::default();
        event.record(&mut one);
        let Some((step, micros)) = one.step.zip(one.micros) else { return };
        let mut told = self.0.lock().expect("what was told");
        match told.iter_mut().find(|(known, _)| *known == step) {
            Some((_, sum)) => *sum += micros,
            None => told.push((step, micros)),
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct One {
    step: Option<String>,
    micros: Option<u64>,
}

impl Visit for One {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "micros" {
            self.micros = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "step" {
            let kind = value.split(|at: char| !at.is_alphanumeric()).next().unwrap_or(value);
            self.step = Some(kind.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
