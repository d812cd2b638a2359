//! What `/proc/PID/mountinfo` tells (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: String,
    /// What of its file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub at: PathBuf,
    /// Its own options; not those of the file system.
    pub options: String,
    /// The file system's type.
    pub kind: String,
}

impl Mount {
    /// Whether it has an option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }
}

/// All mounts, in their order; lines that are none are left out.
pub fn mounts(text: &[u8]) -> impl DoubleEndedIterator<Item = Mount> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        // Between the options, the sixth, and a lone hyphen are optional fields.
        let hyphen = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
        let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
        Some(Mount {
            id: text(0)?,
            root: unescaped(fields.get(3)?),
            at: unescaped(fields.get(4)?),
            options: text(5)?,
            kind: text(hyphen + 1)?,
        })
    })
}

/// The kernel writes blanks, tabs, line feeds and backslashes in octal.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some((first, rest)) = left.split_first() {
        let octal = rest.get(..3).filter(|_| *first == b'\\');
        let digits = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        left = if byte.is_some() { &rest[3..] } else { rest };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_documented() {
        let text = b"36 35 98:0 /a\\040b /mnt\\134x rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\n";
        let [mount] = mounts(text).collect::<Vec<_>>().try_into().expect("one");
        let (id, root, at) = ("36".to_owned(), PathBuf::from("/a b"), PathBuf::from("/mnt\\x"));
        let (options, kind) = ("rw,noatime".to_owned(), "ext3".to_owned());
        assert!(mount.has("noatime") && !mount.has("ro"));
        assert_eq!(mount, Mount { id, root, at, options, kind });
        assert_eq!(mounts(b"36 35 98:0 / /mnt rw\nnothing\n").count(), 0);
    }
}
