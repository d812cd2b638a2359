//! The agents: what runs in a session's sandbox and waits for code.
//!
//! Each is written in the language that it serves, so no environment needs another's interpreter.
//! They are part of this program and mounted read-only, so an old artifact works with a new engine.
//! How they speak is told in `agent/README.md`.

use super::Interpreter;

/// Where agents lie in a sandbox.
pub const DIRECTORY: &str = "/agent";

/// A name below [`DIRECTORY`] and the file's content.
pub type File = (&'static str, &'static str);

/// A module by which `plt.show()` saves figures. Nobody but matplotlib imports it.
const FIGURES: File =
    ("lib/figure_files.py", include_str!("../../agent/python/lib/figure_files.py"));

/// An agent: its files and how it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agent {
    /// What stands between the interpreter and the agent's first file on its command line.
    pub options: &'static [&'static str],
    /// The first is the program.
    pub files: &'static [File],
}

impl Interpreter {
    /// The agent of this language.
    #[must_use]
    pub const fn agent(self) -> Agent {
        match self {
            Self::Bash => Agent {
                options: &["--norc", "--noprofile"],
                files: &[("agent.sh", include_str!("../../agent/bash/agent.sh"))],
            },
            // Isolated: no file that the code leaves in its working directory is taken for a part
            // of the agent (python(1), -I).
            Self::Python => Agent {
                options: &["-I", "-u"],
                files: &[("agent.py", include_str!("../../agent/python/agent.py")), FIGURES],
            },
            // Without the option an interrupt that hits a timer's callback ends node.
            Self::Node => Agent {
                options: &["--no-force-async-hooks-checks"],
                files: &[("agent.js", include_str!("../../agent/node/agent.js"))],
            },
        }
    }

    /// What code finds that runs without an agent.
    #[must_use]
    pub const fn library(self) -> &'static [File] {
        match self {
            Self::Bash | Self::Node => &[],
            Self::Python => &[FIGURES],
        }
    }
}
