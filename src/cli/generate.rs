//! What packagers ask for: shell completions and a man page, made of the command line itself.

use std::io::Write;
use std::process::ExitCode;

use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use super::print;

/// What is generated, on standard output.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum What {
    /// Completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// The manual page, in troff; `man -l FILE` shows it
    Man,
}

pub(super) fn generate(what: What, mut command: Command) -> Result<ExitCode, String> {
    let mut text = Vec::new();
    match what {
        What::Completions { shell } => {
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command, name, &mut text);
        }
        What::Man => man(command, &mut text).map_err(|error| error.to_string())?,
    }
    print(&text).map(|()| ExitCode::SUCCESS)
}

/// One page: the program, each of its commands, the settings.
fn man(mut command: Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    command.build();
    let whole = Man::new(command.clone());
    whole.render_title(page)?;
    whole.render_name_section(page)?;
    whole.render_synopsis_section(page)?;
    whole.render_options_section(page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_name();
        if name != "help" {
            writeln!(page, ".SH \"THE COMMAND {}\"", name.to_uppercase())?;
            page.extend(chapter(&Man::new(sub.clone()))?);
        }
    }
    let mut settings = Vec::new();
    whole.render_extra_section(&mut settings)?;
    page.extend(renamed(&settings, ".SH EXTRA", ".SH SETTINGS"));
    Ok(())
}

/// One command: its sections are parts of the page's.
fn chapter(command: &Man) -> std::io::Result<Vec<u8>> {
    let mut chapter = Vec::new();
    command.render_synopsis_section(&mut chapter)?;
    command.render_description_section(&mut chapter)?;
    command.render_options_section(&mut chapter)?;
    Ok(renamed(&chapter, ".SH ", ".SS "))
}

/// Sections that begin with `from` begin with `to`.
fn renamed(page: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (format!("\n{from}"), format!("\n{to}"));
    String::from_utf8_lossy(page).replace(&from, &to).into_bytes()
}
