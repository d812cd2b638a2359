//! What README promises in tables is what the program has.

use nix_sandbox::settings;

fn readme() -> &'static str {
    include_str!("../README.md")
}

#[test]
fn the_settings_table_is_made_by_settings_rs() {
    let readme = readme();
    let (start, end) =
        ("<!-- settings: made by settings.rs; a test compares -->\n", "<!-- /settings -->");
    let from = readme.find(start).expect("start") + start.len();
    let to = readme.find(end).expect("end");
    let table = settings::markdown();
    if std::env::var_os("BLESS").is_some() {
        let blessed = format!("{}{table}{}", &readme[..from], &readme[to..]);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        std::fs::write(path, blessed).expect("write README.md");
        return;
    }
    assert_eq!(&readme[from..to], table, "BLESS=1 cargo test --test readme writes it");
}

#[test]
fn help_names_every_setting() {
    let help = settings::help();
    for setting in settings::SETTINGS {
        assert!(help.contains(setting.name), "{}", setting.name);
    }
}

#[test]
fn readme_has_exactly_two_set_up_commands() {
    let readme = readme();
    let blocks: Vec<&str> = readme.split("\n```\n").collect();
    let alone: Vec<&str> =
        blocks.iter().copied().filter(|block| block.lines().count() == 1).collect();
    assert_eq!(alone, ["cargo run --release -- demo", "tests/all"]);
}
