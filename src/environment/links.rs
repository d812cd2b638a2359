//! Follows symbolic links one by one, remembering each: a sandbox that shows the end of a chain
//! must show its links too.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kernel's own bound on links in one lookup (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Walk {
    /// The path without any link in it.
    pub(super) real: PathBuf,
    /// Each link met, with its target as it is written.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

/// Follows `path`, absolute, to its end. `on_host` says where a path of the walked tree lies on
/// this host: itself, or below the root of a chroot store.
///
/// # Errors
/// As for `lstat(2)`; `ELOOP` beyond 40 links.
pub(super) fn walk(path: &Path, on_host: &dyn Fn(&Path) -> PathBuf) -> io::Result<Walk> {
    let parts = |path: &Path| path.iter().map(OsString::from).collect::<VecDeque<_>>();
    let mut left = parts(path);
    let mut real = PathBuf::from("/");
    let mut links = Vec::new();
    while let Some(part) = left.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        // An absolute part, the leading `/`, starts again from the root.
        let next = real.join(&part);
        let host = on_host(&next);
        if !fs::symlink_metadata(&host)?.is_symlink() {
            real = next;
            continue;
        }
        let target = fs::read_link(&host)?;
        if links.len() == MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let mut ahead = parts(&target);
        ahead.append(&mut left);
        left = ahead;
        links.push((next, target));
    }
    Ok(Walk { real, links })
}

/// A tree whose `/` is the directory `root` of this host.
pub(super) fn below(root: &Path) -> impl Fn(&Path) -> PathBuf {
    let root = root.to_owned();
    move |path| match path.strip_prefix("/") {
        Ok(rest) if rest.as_os_str().is_empty() => root.clone(),
        Ok(rest) => root.join(rest),
        Err(_) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_remembered() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).expect("mkdir");
        fs::write(at("a/b/file"), "").expect("write");
        symlink("/a/./x/../b", at("absolute")).expect("symlink");
        fs::create_dir(at("a/x")).expect("mkdir");
        symlink("../absolute/file", at("a/relative")).expect("symlink");
        let walk = walk(Path::new("/a/relative"), &below(dir.path())).expect("walk");
        let links = [("/a/relative", "../absolute/file"), ("/absolute", "/a/./x/../b")];
        let links = links.map(|(at, to)| (PathBuf::from(at), PathBuf::from(to)));
        assert_eq!(walk, Walk { real: PathBuf::from("/a/b/file"), links: links.to_vec() });
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tempfile::tempdir().expect("tempdir");
        symlink("round", dir.path().join("round")).expect("symlink");
        let error = walk(Path::new("/round"), &below(dir.path())).expect_err("circle");
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }
}
