//! The AppArmor profile that exempts this program from the restriction of user namespaces.

use std::path::Path;

/// As it is shipped: for a build by Nix.
const PROFILE: &str = include_str!("../../deploy/apparmor/nix-sandbox-mcp");
/// Where it attaches.
const PATTERN: &str = "/nix/store/*-nix-sandbox-mcp-*/bin/nix-sandbox-mcp";

/// The profile for a program at `path` (`/proc/self/exe` of whoever asks). It always attaches to
/// builds by Nix, and to `path` too if that is somewhere else.
#[must_use]
pub fn apparmor_profile(path: &Path) -> String {
    let by_nix = path.starts_with("/nix/store") && path.ends_with("bin/nix-sandbox-mcp");
    match path.to_str() {
        Some(path) if !by_nix && path.starts_with('/') && !path.contains(char::is_control) => {
            // The parser wants a slash before anything else, so it stands before the choice.
            let both = format!("/{{{},{}}}", &PATTERN[1..], literal(&path[1..]));
            PROFILE.replacen(PATTERN, &both, 1)
        }
        _ => PROFILE.to_owned(),
    }
}

/// What means something in a pattern, means itself (apparmor.d(5)).
fn literal(path: &str) -> String {
    let mut literal = String::with_capacity(path.len());
    for c in path.chars() {
        if "\\*?[]{}^,\"@".contains(c) {
            literal.push('\\');
        }
        literal.push(c);
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(path: &str) -> String {
        let profile = apparmor_profile(Path::new(path));
        let line = profile.lines().find(|line| line.starts_with("profile ")).expect("profile");
        line.split('"').nth(1).expect("attachment").to_owned()
    }

    #[test]
    fn a_build_by_nix_is_named_by_a_pattern_that_survives_upgrades() {
        let path = "/nix/store/abc-nix-sandbox-mcp-0.1.0/bin/nix-sandbox-mcp";
        assert_eq!(attachment(path), PATTERN);
    }

    #[test]
    fn another_place_is_named_too_and_literally() {
        let home = attachment("/home/a/.cargo/bin/nix-sandbox-mcp");
        assert_eq!(
            home,
            "/{nix/store/*-nix-sandbox-mcp-*/bin/nix-sandbox-mcp,home/a/.cargo/bin/nix-sandbox-mcp}"
        );
        assert!(attachment("/opt/{x}/*").ends_with(",opt/\\{x\\}/\\*}"));
    }

    #[test]
    fn a_path_that_no_profile_can_hold_changes_nothing() {
        assert_eq!(attachment("/opt/a\nb"), PATTERN);
        assert_eq!(attachment("relative"), PATTERN);
    }

    #[test]
    fn the_profile_gives_user_namespaces_and_nothing_else() {
        let text = apparmor_profile(Path::new("/usr/bin/nix-sandbox-mcp"));
        let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(rules, ["  userns,", "  include if exists <local/nix-sandbox-mcp>"]);
    }
}
