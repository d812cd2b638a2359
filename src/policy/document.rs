//! Policy files: seccompiler's JSON form plus `include`, read and checked.

use super::bpf::Verdict;
use super::{Arch, Fault, PolicyError, syscall};
use serde::Deserialize;

/// The rules of one policy in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Policy {
    /// The answer to every call that no rule matches.
    pub(super) mismatch: Verdict,
    pub(super) rules: Vec<Rule>,
}

/// A checked rule: if all tests hold for the call `number`, the answer is `verdict`.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) number: u32,
    pub(super) tests: Vec<Test>,
    pub(super) verdict: Verdict,
}

/// A test of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    /// Which argument, 0 to 5.
    pub(super) index: u8,
    pub(super) width: Width,
    pub(super) operator: Operator,
    pub(super) value: u64,
}

/// How much of an argument is looked at.
///
/// What the kernel takes as `int` must be a dword: the kernel ignores the upper half of the
/// register, so a filter that does not is passed by (CVE-2019-10063).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Width {
    Dword,
    Qword,
}

/// How an argument is compared with the value, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// The bits of the mask are those of the value.
    MaskedEq(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// What the file is for.
    #[serde(rename = "comment")]
    _purpose: String,
    #[serde(default)]
    include: Vec<String>,
    #[serde(alias = "default_action")]
    mismatch_action: Verdict,
    #[serde(alias = "filter_action")]
    match_action: Verdict,
    filter: Vec<WrittenRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    syscall: String,
    args: Option<Vec<WrittenTest>>,
    comment: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTest {
    index: u8,
    #[serde(rename = "type")]
    width: Width,
    op: Operator,
    val: u64,
    #[serde(rename = "comment")]
    _meaning: Option<String>,
}

/// Reads the file `root` and all that it includes.
pub(super) fn load<'a>(
    root: &str,
    arch: Arch,
    find: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<Policy, PolicyError> {
    let mut loader = Loader { arch, find, seen: Vec::new(), rules: Vec::new() };
    let mismatch = loader.read(root)?;
    Ok(Policy { mismatch, rules: loader.rules })
}

struct Loader<'f, 'a> {
    arch: Arch,
    find: &'f dyn Fn(&str) -> Option<&'a str>,
    /// A file read again would add rules that are never reached; this ends circles, too.
    seen: Vec<String>,
    rules: Vec<Rule>,
}

impl Loader<'_, '_> {
    /// Appends the rules of the includes of `file`, then its own; returns its mismatch action.
    fn read(&mut self, file: &str) -> Result<Verdict, PolicyError> {
        self.seen.push(file.to_owned());
        let document = self.parse(file)?;
        for included in &document.include {
            if self.seen.contains(included) {
                continue;
            }
            if self.read(included)? != document.mismatch_action {
                let file = included.clone();
                return Err(PolicyError::Mismatch { file });
            }
        }
        for (index, written) in document.filter.iter().enumerate() {
            let rule = check(written, document.match_action, self.arch);
            let rule = rule.map_err(|fault| PolicyError::Rule {
                file: file.to_owned(),
                rule: index + 1,
                syscall: written.syscall.clone(),
                fault,
            })?;
            self.rules.extend(rule);
        }
        Ok(document.mismatch_action)
    }

    fn parse(&self, file: &str) -> Result<Document, PolicyError> {
        let name = || file.to_owned();
        let text = (self.find)(file).ok_or_else(|| PolicyError::UnknownFile { file: name() })?;
        let document: Document = serde_json::from_str(text).map_err(|source| {
            let file = name();
            PolicyError::Syntax { file, source }
        })?;
        for action in [document.mismatch_action, document.match_action] {
            // Errno 0 would claim success for a call that was not made.
            if let Verdict::Errno(errno @ (0 | 4096..)) = action {
                let file = name();
                return Err(PolicyError::Errno { file, errno });
            }
        }
        Ok(document)
    }
}

/// `None` for a call which only the other architecture has.
fn check(written: &WrittenRule, verdict: Verdict, arch: Arch) -> Result<Option<Rule>, Fault> {
    if written.comment.trim().is_empty() {
        return Err(Fault::NoReason);
    }
    let number = syscall::number(&written.syscall, arch)?;
    let tests = match written.args.as_deref() {
        None => Vec::new(),
        Some([]) => return Err(Fault::NoTests),
        Some(args) => args.iter().map(check_test).collect::<Result<_, _>>()?,
    };
    Ok(number.map(|number| Rule { number, tests, verdict }))
}

fn check_test(written: &WrittenTest) -> Result<Test, Fault> {
    if written.index > 5 {
        return Err(Fault::Index);
    }
    let mask = match written.op {
        Operator::MaskedEq(mask) => mask,
        _ => 0,
    };
    if written.width == Width::Dword && (written.val | mask) > u64::from(u32::MAX) {
        return Err(Fault::TooWide);
    }
    Ok(Test {
        index: written.index,
        width: written.width,
        operator: written.op,
        value: written.val,
    })
}
