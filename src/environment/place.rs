//! Which paths may play which part. Pure, but for the caller's home, which is given.

use std::path::Path;

pub(crate) use crate::plan::is_plain;

/// What the sandbox makes itself; no environment and no project stands at, above or below these.
const MADE: [&str; 8] =
    ["/proc", "/dev", "/sys", "/workspace", "/tmp", "/code", "/agent", "/outputs"];
/// Where environments stand, and the small files of `/etc`; no project does.
const SYSTEM: [&str; 3] = ["/etc", "/nix", "/usr"];
/// The top-level directories of programs and libraries, which are links into `/usr` on most hosts.
pub(super) const TOP: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The place that the sandbox makes itself at, above or below `path`.
pub(crate) fn made_at(path: &Path) -> Option<&'static str> {
    MADE.into_iter().find(|place| overlap(path, Path::new(place)))
}

/// The place at, above or below `path` where no project can stand.
pub(crate) fn taken_at(path: &Path) -> Option<String> {
    let top = TOP.iter().map(|name| format!("/{name}"));
    let all = MADE.iter().chain(&SYSTEM).map(|place| (*place).to_owned()).chain(top);
    all.into_iter().find(|place| overlap(path, Path::new(place)))
}

fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Whether `path` is a home directory or holds one: `/root`, `/home`, `/home/x`, the caller's own.
pub(crate) fn is_or_holds_home(path: &Path, home: Option<&Path>) -> bool {
    Path::new("/root").starts_with(path)
        || Path::new("/home").starts_with(path)
        || path.parent() == Some(Path::new("/home"))
        || home.is_some_and(|home| home.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_and_what_holds_them() {
        let home = Some(Path::new("/srv/people/ann"));
        for path in ["/", "/root", "/home", "/home/bob", "/srv", "/srv/people/ann"] {
            assert!(is_or_holds_home(Path::new(path), home), "{path}");
        }
        for path in ["/root/x", "/home/bob/x", "/srv/people/bob", "/srv/people/ann/x"] {
            assert!(!is_or_holds_home(Path::new(path), home), "{path}");
        }
    }
}
