//! What all contestants run, and what they show.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix_sandbox::plan::{FileIdentity, HostFile};

/// A directory of our own with a static `true` and as many store paths as anybody wants.
pub(crate) struct Workplace {
    directory: tempfile::TempDir,
}

/// Ends at once; with an argument it never does.
const PROGRAM: &str =
    "#include <unistd.h>\nint main(int count, char **words) { return count > 1 ? pause() : 0; }\n";
/// Most paths of a closure.
const PATHS: usize = 1000;

impl Workplace {
    pub(crate) fn new() -> Self {
        // Not below /tmp, which a sandbox makes itself.
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let permissions = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), permissions).expect("permissions");
        let one = Self { directory };
        fs::create_dir_all(one.path("bin")).expect("bin");
        fs::write(one.path("true.c"), PROGRAM).expect("source");
        let paths = [one.program(), one.path("true.c")];
        let built = Command::new("cc").args(["-static", "-O2", "-o"]).args(paths).status();
        assert!(built.expect("a C compiler").success(), "cc -static needs the C library's archive");
        for number in 0..PATHS {
            fs::create_dir_all(one.store_path(number)).expect("a store path");
        }
        one
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// The directory that holds the program.
    pub(crate) fn bin(&self) -> PathBuf {
        self.path("bin")
    }

    /// The program: static, does nothing.
    pub(crate) fn program(&self) -> PathBuf {
        self.path("bin/true")
    }

    /// A directory that stands for one store path.
    pub(crate) fn store_path(&self, number: usize) -> PathBuf {
        self.path(&format!("store/{}", Self::store_name(number)))
    }

    /// Its name, as a store has them.
    pub(crate) fn store_name(number: usize) -> String {
        format!("{number:032}-path")
    }
}

/// `path` as a plan names it.
pub(crate) fn host_file(path: &Path) -> HostFile {
    let metadata = fs::metadata(path).expect("a file of the workplace");
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    HostFile { path: path.to_owned(), directory: metadata.is_dir(), identity }
}
