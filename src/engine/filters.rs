//! The system-call filters, compiled ahead by `build.rs` for the machine that this is built for.

use crate::policy::{Instruction, Profile, Wearer};

/// The finished program of `wearer` in `profile`; see [`crate::policy::compile`].
#[must_use]
pub fn filter(wearer: Wearer, profile: Profile) -> &'static [Instruction] {
    include!(concat!(env!("OUT_DIR"), "/filters.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Arch, compile};

    #[test]
    fn what_was_compiled_ahead_is_what_the_rules_say_now() {
        for wearer in [Wearer::Base, Wearer::Python, Wearer::Node, Wearer::Shell, Wearer::Init] {
            for profile in [Profile::Default, Profile::Strict, Profile::Compat] {
                let program = compile(wearer, profile, Arch::native()).expect("a program");
                assert_eq!(program.instructions(), filter(wearer, profile));
            }
        }
    }
}
