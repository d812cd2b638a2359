//! How much a payload may use.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// How much a payload may use. Every applier takes this apart without `..`, so a new limit makes
/// the compiler name each place that must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory of the whole sandbox, bytes.
    pub memory: u64,
    /// Swap of the whole sandbox, bytes.
    pub swap: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Processor time, in thousandths of one processor.
    pub cpu_milli: u32,
    /// `/workspace`, and again `/tmp`, bytes each. Also the largest single file.
    pub workspace: u64,
    /// Files and directories in each of them.
    pub files: u64,
    /// What the payload may write to stdout and stderr together before it is ended, bytes.
    pub output: u64,
    /// Wall-clock time, milliseconds.
    pub time_ms: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 * MIB,
            swap: 0,
            pids: 512,
            cpu_milli: 2000,
            workspace: 256 * MIB,
            files: 65_536,
            output: 64 * MIB,
            time_ms: 30_000,
        }
    }
}

impl Limits {
    /// The longest wall-clock limit: 7 days.
    pub const LONGEST_MS: u64 = 7 * 24 * 3600 * 1000;

    /// The wall-clock limit.
    #[must_use]
    pub const fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }
}

/// A limit, by the name that it has in `[limits]`, in presets and in `metadata.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::swap`].
    Swap,
    /// [`Limits::pids`].
    Pids,
    /// [`Limits::cpu_milli`].
    Cpu,
    /// [`Limits::workspace`].
    Workspace,
    /// [`Limits::files`].
    Files,
    /// [`Limits::output`].
    Output,
    /// [`Limits::time_ms`].
    Time,
}

impl Limit {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Workspace => "workspace",
            Self::Files => "files",
            Self::Output => "output",
            Self::Time => "time",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A limit outside of what makes sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{limit}` is {value}; it must be {range}")]
pub struct LimitError {
    limit: Limit,
    value: String,
    range: &'static str,
}

impl Limits {
    /// Checks every limit against its range.
    ///
    /// # Errors
    /// The first limit that is out of range.
    pub fn check(&self) -> Result<(), LimitError> {
        let Self { memory, swap, pids, cpu_milli, workspace, files, output, time_ms } = *self;
        let wrong = |limit, value: String, range| Err(LimitError { limit, value, range });
        if !(4 * MIB..=1024 * GIB).contains(&memory) {
            return wrong(Limit::Memory, memory.to_string(), "between 4M and 1024G");
        }
        if swap > 1024 * GIB {
            return wrong(Limit::Swap, swap.to_string(), "at most 1024G");
        }
        if !(1..=65_536).contains(&pids) {
            return wrong(Limit::Pids, pids.to_string(), "between 1 and 65536");
        }
        if !(10..=1_024_000).contains(&cpu_milli) {
            let cpu = f64::from(cpu_milli) / 1000.0;
            return wrong(Limit::Cpu, cpu.to_string(), "between 0.01 and 1024 processors");
        }
        if !(64 * KIB..=1024 * GIB).contains(&workspace) {
            return wrong(Limit::Workspace, workspace.to_string(), "between 64K and 1024G");
        }
        if !(16..=100_000_000).contains(&files) {
            return wrong(Limit::Files, files.to_string(), "between 16 and 100000000");
        }
        if !(KIB..=1024 * GIB).contains(&output) {
            return wrong(Limit::Output, output.to_string(), "between 1K and 1024G");
        }
        if !(1..=Self::LONGEST_MS).contains(&time_ms) {
            let seconds = Duration::from_millis(time_ms).as_secs_f64();
            return wrong(Limit::Time, seconds.to_string(), "above 0 s and at most 7 days");
        }
        Ok(())
    }
}

/// Some limits, as they are written in a settings file, a preset or `metadata.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOverrides {
    /// Bytes, or text such as `"512M"`.
    #[serde(default, deserialize_with = "size")]
    pub memory: Option<u64>,
    /// Bytes, or text such as `"512M"`.
    #[serde(default, deserialize_with = "size")]
    pub swap: Option<u64>,
    /// A count.
    #[serde(default)]
    pub pids: Option<u32>,
    /// Processors; fractions are allowed.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Bytes, or text such as `"512M"`.
    #[serde(default, deserialize_with = "size")]
    pub workspace: Option<u64>,
    /// A count.
    #[serde(default)]
    pub files: Option<u64>,
    /// Bytes, or text such as `"64M"`.
    #[serde(default, deserialize_with = "size")]
    pub output: Option<u64>,
    /// Seconds; fractions are allowed.
    #[serde(default)]
    pub time: Option<f64>,
}

impl LimitOverrides {
    /// These, and where they say nothing, `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let Self { memory, swap, pids, cpu, workspace, files, output, time } = self;
        Self {
            memory: memory.or(below.memory),
            swap: swap.or(below.swap),
            pids: pids.or(below.pids),
            cpu: cpu.or(below.cpu),
            workspace: workspace.or(below.workspace),
            files: files.or(below.files),
            output: output.or(below.output),
            time: time.or(below.time),
        }
    }

    /// Puts these over `limits`; the result still has to pass [`Limits::check`].
    ///
    /// # Errors
    /// A `cpu` or `time` that is no positive number.
    pub fn apply(&self, limits: &mut Limits) -> Result<(), LimitError> {
        let Self { memory, swap, pids, cpu, workspace, files, output, time } = *self;
        set(&mut limits.memory, memory);
        set(&mut limits.swap, swap);
        set(&mut limits.pids, pids);
        set(&mut limits.workspace, workspace);
        set(&mut limits.files, files);
        set(&mut limits.output, output);
        if let Some(cpu) = cpu {
            let milli = thousandths(Limit::Cpu, cpu, "between 0.01 and 1024 processors")?;
            limits.cpu_milli = u32::try_from(milli).unwrap_or(u32::MAX);
        }
        if let Some(time) = time {
            limits.time_ms = thousandths(Limit::Time, time, "above 0 s and at most 7 days")?;
        }
        limits.check()
    }
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn thousandths(limit: Limit, value: f64, range: &'static str) -> Result<u64, LimitError> {
    if !value.is_finite() || value <= 0.0 || value > 1e9 {
        return Err(LimitError { limit, value: value.to_string(), range });
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: positive and at most 1e12"
    )]
    let value = (value * 1000.0).round().max(1.0) as u64;
    Ok(value)
}

/// Reads a size: a whole number of bytes, or one with the suffix K, M or G (powers of 1024; `KB`,
/// `KiB` and lower case are accepted too).
///
/// # Errors
/// A sentence that says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match trimmed[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        _ => return Err(no_size(text)),
    };
    let number: u64 = digits.trim_end().parse().map_err(|_| no_size(text))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is larger than any memory"))
}

fn no_size(text: &str) -> String {
    format!("{text:?} is no size; write bytes, or a number with K, M or G, such as 512M")
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size: bytes, or text such as \"512M\"")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
            u64::try_from(value).map_err(|_| E::custom("a size cannot be negative"))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_size(text).map_err(E::custom)
        }
    }
    from.deserialize_any(Size).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("512M", 512 * MIB), ("1 GiB", GIB), ("64kb", 64 * KIB)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "12T", "99999999999G", "0x10"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_defaults_are_in_range() {
        Limits::default().check().expect("defaults");
    }

    #[test]
    fn bad_values_are_refused_with_name_value_and_range() {
        let read = |text: &str| toml::from_str::<LimitOverrides>(text).expect(text);
        for (text, says) in [
            ("memory = 0", "limit `memory` is 0; it must be between 4M and 1024G"),
            ("time = 0", "limit `time` is 0; it must be above 0 s and at most 7 days"),
            ("time = nan", "limit `time` is NaN; it must be above 0 s and at most 7 days"),
            ("time = 1e99", "it must be above 0 s and at most 7 days"),
            ("cpu = -1", "limit `cpu` is -1; it must be between 0.01 and 1024 processors"),
            ("pids = 0", "limit `pids` is 0; it must be between 1 and 65536"),
        ] {
            let mut limits = Limits::default();
            let error = read(text).apply(&mut limits).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn overrides_change_only_what_they_name() {
        let overrides: LimitOverrides =
            toml::from_str("memory = \"1G\"\ncpu = 0.5\ntime = 2.5").expect("toml");
        let mut limits = Limits::default();
        overrides.apply(&mut limits).expect("in range");
        let expected = Limits { memory: GIB, cpu_milli: 500, time_ms: 2500, ..Limits::default() };
        assert_eq!(limits, expected);
    }
}
