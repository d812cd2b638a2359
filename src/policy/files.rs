//! The policy files, which travel within the binary.

use super::{Profile, Wearer};

/// The file that a wearer's policy begins with.
pub(super) const fn root(wearer: Wearer) -> &'static str {
    match wearer {
        Wearer::Base => "base.json",
        Wearer::Python => "python.json",
        Wearer::Node => "node.json",
        Wearer::Shell => "shell.json",
        Wearer::Init => "init.json",
    }
}

macro_rules! embedded {
    ($($name:literal)*) => {
        /// Every file by its name below `seccomp/`.
        pub(super) const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../seccomp/", $name)))),*];
    };
}

embedded! {
    "absent.json" "arguments.json" "base.json" "families.json" "forbidden.json" "init.json"
    "node.json" "protocols.json" "python.json" "shell.json" "urgent.json"
    "profile/compat.json" "profile/default.json" "profile/strict-families.json"
    "profile/strict.json"
}

/// The text of a file; `profile.json` stands for the file of the chosen profile.
pub(super) fn find(name: &str, profile: Profile) -> Option<&'static str> {
    let name = match (name, profile) {
        ("profile.json", Profile::Default) => "profile/default.json",
        ("profile.json", Profile::Strict) => "profile/strict.json",
        ("profile.json", Profile::Compat) => "profile/compat.json",
        (other, _) => other,
    };
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(text)
}
