//! Compiles the system-call filters ahead: a launch loads a finished program instead of reading
//! some hundred rules (0.4 ms each).

#[allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
#[path = "src/policy/mod.rs"]
mod policy;

use std::fmt::Write as _;
use std::path::Path;

use policy::{Arch, Profile, Wearer};

const PROFILES: [Profile; 3] = [Profile::Default, Profile::Strict, Profile::Compat];
const WEARERS: [Wearer; 5] =
    [Wearer::Base, Wearer::Python, Wearer::Node, Wearer::Shell, Wearer::Init];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/policy");
    println!("cargo::rerun-if-changed=seccomp");
    let arch = match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => Arch::X86_64,
        Ok("aarch64") => Arch::Aarch64,
        // The library itself says what it cannot be built for.
        _ => return,
    };
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&directory).join("filters.rs"), filters(arch)).expect("OUT_DIR");
}

/// The arms of a match over wearer and profile, each with its program.
fn filters(arch: Arch) -> String {
    let mut text = String::from("match (wearer, profile) {\n");
    for (wearer, profile) in WEARERS.into_iter().flat_map(|w| PROFILES.map(|p| (w, p))) {
        let program =
            policy::compile(wearer, profile, arch).unwrap_or_else(|error| panic!("{error}"));
        writeln!(text, "(Wearer::{wearer:?}, Profile::{profile:?}) => const {{ &[").expect("text");
        for instruction in program.instructions() {
            writeln!(text, "{instruction:?},").expect("text");
        }
        text.push_str("] },\n");
    }
    text + "}\n"
}
