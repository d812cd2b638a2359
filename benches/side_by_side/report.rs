//! The table.

use std::fmt;
use std::time::Duration;

use crate::memory::{MANY, Memory};
use crate::steps::Steps;
use crate::throughput::{Endurance, Rate};

type Measured = Vec<(String, Vec<Duration>)>;

pub(crate) struct Report {
    text: String,
    /// Name and ratio of all that was timed, in the order of the tables.
    ratios: Vec<(String, f64)>,
}

/// What a ratio must not reach: far above what is measured on a machine that has nothing else to do,
/// below what a lost template or pool would cost.
const BOUNDS: [(&str, f64); 4] = [
    ("command line", 1.5),
    ("server, template", 0.8),
    ("server, blank", 0.6),
    ("session call, python", 0.5),
];

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("?").to_owned();
        let user = if nix::unistd::geteuid().is_root() { "root" } else { "an ordinary user" };
        let text = format!(
            "# Performance\n\n\
             Made by `cargo bench --bench side_by_side -- --write`. All walls on; the contestants of a \
             table ran in turn, {rounds} rounds, so that what disturbs one disturbs all: compare within \
             one table. Linux {}, {processors} processors, as {user}, load average {load} at the start.\n",
            kernel.trim()
        );
        let text =
            text + "`NIX_SANDBOX_LOG=trace` tells the microseconds of each step of a launch.\n";
        Self { text, ratios: Vec::new() }
    }

    fn heading(&mut self, title: &str) {
        self.text.push_str(&format!("\n## {title}\n\n"));
    }

    pub(crate) fn latency(&mut self, paths: usize, measured: Measured) {
        self.heading(&format!("One sandbox, a static `true`, a closure of {paths} paths"));
        self.times(measured, "bubblewrap");
    }

    pub(crate) fn steps(&mut self, measured: &[Steps]) {
        self.heading("Where the time of a launch goes, a closure of 10 paths");
        let names: Vec<&str> = measured.iter().map(|one| one.name).collect();
        self.text.push_str(&format!(
            "| µs, median | {} |\n|---{}|\n",
            names.join(" | "),
            "|---".repeat(names.len())
        ));
        let mut kinds: Vec<&String> = Vec::new();
        for (kind, _) in measured.iter().flat_map(|one| &one.steps) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let mut row = |name: &str, of: &dyn Fn(&Steps) -> Option<u64>| {
            let cells = measured
                .iter()
                .map(|one| of(one).map_or("-".to_owned(), |micros| micros.to_string()));
            self.text
                .push_str(&format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(" | ")));
        };
        let sum = |one: &Steps| one.steps.iter().map(|(_, micros)| micros).sum::<u64>();
        for kind in kinds {
            row(kind, &|one| {
                one.steps.iter().find(|(known, _)| known == kind).map(|(_, micros)| *micros)
            });
        }
        row("all steps", &|one| Some(sum(one)));
        row("clone, filters, execution, end, and telling each other", &|one| {
            Some(one.whole.saturating_sub(sum(one)))
        });
        row("the whole launch", &|one| Some(one.whole));
    }

    pub(crate) fn mcp(&mut self, measured: Measured) {
        self.heading("Over MCP: from the request to the answer");
        self.times(measured, "bubblewrap + python");
    }

    fn times(&mut self, measured: Measured, against: &str) {
        let medians: Vec<(String, Duration, Duration)> = measured
            .into_iter()
            .map(|(name, mut times)| {
                times.sort_unstable();
                (name, times[times.len() / 2], times[0])
            })
            .collect();
        let base = medians.iter().find(|(name, ..)| name == against);
        let base = base.map_or(Duration::ZERO, |(_, median, _)| *median);
        self.text.push_str(&format!("| | median | least | × {against} |\n|---|---|---|---|\n"));
        for (name, median, least) in medians {
            let ratio = median.as_secs_f64() / base.as_secs_f64();
            self.text.push_str(&format!(
                "| {name} | {} | {} | {ratio:.3} |\n",
                millis(median),
                millis(least)
            ));
            self.ratios.push((name, ratio));
        }
    }

    /// Each ratio that is out of its bound.
    pub(crate) fn out_of_bounds(&self) -> Vec<String> {
        let bound = |name: &str| BOUNDS.iter().find(|(known, _)| *known == name);
        let out = self.ratios.iter().filter_map(|(name, ratio)| {
            let (_, most) = bound(name)?;
            (ratio > most).then(|| format!("{name}: {ratio:.2}, not below {most}"))
        });
        out.collect()
    }

    pub(crate) fn throughput(&mut self, rates: &[Rate]) {
        self.heading("Sandboxes per second");
        self.text.push_str("| | at once | per second | × bubblewrap |\n|---|---|---|---|\n");
        let base = |at_once| {
            let found =
                rates.iter().find(|rate| rate.at_once == at_once && rate.name == "bubblewrap");
            found.map_or(1.0, |rate| rate.per_second)
        };
        for Rate { name, at_once, per_second } in rates {
            let ratio = per_second / base(*at_once);
            self.text.push_str(&format!("| {name} | {at_once} | {per_second:.0} | {ratio:.1} |\n"));
        }
    }

    pub(crate) fn memory(&mut self, memory: &Memory) {
        let Memory { ours: (ours, private), ours_of_many, bubblewrap, idle_server, idle_ticks } =
            memory;
        // Pid 1 is not dumpable: only root may look.
        let shown = |size: &u64| match size {
            0 => "(shown to root only)".to_owned(),
            size => size.to_string(),
        };
        let [ours, private, ours_of_many] = [ours, private, ours_of_many].map(shown);
        self.heading("Memory");
        self.text.push_str(&format!(
            "| | KiB |\n|---|---|\n\
             | our pid 1 beside a sleeping payload, proportional | {ours} |\n\
             | the same, where {MANY} of them sleep | {ours_of_many} |\n\
             | what of it is nobody else's | {private} |\n\
             | bubblewrap's two processes, proportional | {bubblewrap} |\n\
             | an idle server and its launcher, resident | {idle_server} |\n\n\
             The idle server used {idle_ticks} clock ticks of processor time within one second.\n"
        ));
    }

    pub(crate) fn endurance(&mut self, endurance: &Endurance) {
        let Endurance { launches, first, last, before, after } = endurance;
        self.heading(&format!("{launches} sandboxes one after the other"));
        self.text.push_str(&format!(
            "The first tenth took {} each, the last {}. Descriptors, threads and resident KiB before: \
             {before:?}, after: {after:?}.\n",
            millis(*first),
            millis(*last)
        ));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
