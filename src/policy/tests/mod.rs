//! The walls in words, and what keeps them standing.

mod golden;
mod malformed;
mod oracle;
mod walls;

use super::{Arch, Call, Profile, Program, Verdict, Wearer, compile};

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];
const PROFILES: [Profile; 3] = [Profile::Default, Profile::Strict, Profile::Compat];
const WEARERS: [Wearer; 5] =
    [Wearer::Base, Wearer::Python, Wearer::Node, Wearer::Shell, Wearer::Init];

const EPERM: Verdict = Verdict::Errno(1);
const ENOSYS: Verdict = Verdict::Errno(38);
const EPROTONOSUPPORT: Verdict = Verdict::Errno(93);
const EOPNOTSUPP: Verdict = Verdict::Errno(95);
const EAFNOSUPPORT: Verdict = Verdict::Errno(97);

/// A compiled policy that is asked by name.
struct Filter {
    arch: Arch,
    program: Program,
}

impl Filter {
    fn of(wearer: Wearer, profile: Profile, arch: Arch) -> Self {
        let program = compile(wearer, profile, arch).unwrap();
        Self { arch, program }
    }

    fn number(&self, name: &str) -> u32 {
        super::syscall::number(name, self.arch)
            .unwrap()
            .unwrap_or_else(|| panic!("{name} is no call of {:?}", self.arch))
    }

    fn ask(&self, name: &str, args: &[u64]) -> Verdict {
        self.ask_number(self.number(name), args)
    }

    fn ask_number(&self, nr: u32, given: &[u64]) -> Verdict {
        let mut args = [0; 6];
        args[..given.len()].copy_from_slice(given);
        let arch = self.arch.audit();
        self.program.evaluate(&Call { arch, nr, args })
    }
}

/// The default profile's base filter of each architecture.
fn base() -> [Filter; 2] {
    ARCHES.map(|arch| Filter::of(Wearer::Base, Profile::Default, arch))
}
