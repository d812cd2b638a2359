//! The arguments and the environment that a process was started with, as others see them.

use std::ffi::CStr;

use nix::errno::Errno;

/// Where the arguments and the environment lie that a process was started with: its own, and those of
/// every process that is forked from it.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    arguments: (usize, usize),
    environment: (usize, usize),
}

impl Arguments {
    /// Reads it out of a process's `/proc/self/stat`, whatever `/proc` that came from.
    ///
    /// # Errors
    /// `stat` cannot be understood, or hides the bounds, as from everybody but whom it may trust (`EIO`).
    pub fn read(stat: &[u8]) -> nix::Result<Self> {
        let stat = String::from_utf8_lossy(stat);
        // After the program's name, which may hold anything and ends with the last parenthesis, the
        // fields are numbered from 3; 48 to 51 are the bounds of arguments and environment (proc(5)).
        let (_, fields) = stat.rsplit_once(") ").ok_or(Errno::EIO)?;
        let bounds: Vec<usize> = fields
            .split(' ')
            .skip(45)
            .take(4)
            .filter_map(|field| field.trim().parse().ok())
            .collect();
        match bounds[..] {
            [first, first_end, second, second_end]
                if first != 0 && first <= first_end && second != 0 && second <= second_end =>
            {
                Ok(Self { arguments: (first, first_end), environment: (second, second_end) })
            }
            _ => Err(Errno::EIO),
        }
    }

    /// Overwrites both and names this process `name`. `/proc/1/cmdline` can be read by everyone in the
    /// sandbox; the arguments of a command line hold paths of the host, its environment holds secrets.
    ///
    /// To be called by pid 1, which never reads either again.
    ///
    /// # Errors
    /// Never in practice.
    pub fn forget(self, name: &CStr) -> nix::Result<()> {
        nix::sys::prctl::set_name(name)?;
        for (from, to) in [self.arguments, self.environment] {
            // SAFETY: the kernel said that these bytes hold the argument and environment strings of
            // this process or of the one that it was forked from: memory of the initial stack, mapped,
            // writable, and in this process a private copy since the fork. No Rust reference points to
            // it: std hands out copies only.
            unsafe {
                std::ptr::write_bytes(
                    std::ptr::with_exposed_provenance_mut::<u8>(from),
                    0,
                    to - from,
                );
            };
        }
        Ok(())
    }
}
