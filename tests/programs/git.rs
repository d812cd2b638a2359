//! git, in a repository of its own and in the project's.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{directory, sh};
use crate::{found, in_project, needs, says};

#[test]
fn a_repository_is_made_filled_and_cloned() {
    needs!(Userns);
    if !found("shell", &["git"]) {
        return;
    }
    let ran = sh(
        "git init -q -b main one && cd one && git config user.name a && git config user.email a@b && \
                  echo first >f && git add f && git commit -qm first && echo more >>f && git commit -qam second && \
                  git log --format=%s && git clone -q . ../two && cat ../two/f && git -C ../two gc -q && \
                  git -C ../two fsck --no-progress",
    );
    says(&ran, "second\nfirst\nfirst\nmore\n");
}

/// Makes a repository on the host, as whoever runs the test.
fn repository(at: &Path) {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(at).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
        let output = command.output().expect("git on the host");
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    fs::write(at.join("f"), "content\n").expect("f");
    git(&["add", "f"]);
    git(&["commit", "-qm", "of the project"]);
}

/// Where root started the sandbox, the project's owner is nobody that git knows inside.
#[test]
fn the_project_s_history_is_read_without_a_word_about_ownership() {
    needs!(Userns);
    if !found("shell", &["git"]) {
        return;
    }
    let project = directory();
    repository(project.path());
    let script = "git -C /project log --format=%s && cd /project && git status --short && \
                  git show --format=%an HEAD:f && git blame -s f | cut -c 10-";
    let ran = in_project("shell", project.path(), &["sh", "-c", script]);
    says(&ran, "of the project\ncontent\n1) content\n");
}

#[test]
fn the_project_is_cloned_into_the_workspace() {
    needs!(Userns);
    if !found("shell", &["git"]) {
        return;
    }
    let project = directory();
    repository(project.path());
    let script = "git clone -q /project copy && cat copy/f";
    says(&in_project("shell", project.path(), &["sh", "-c", script]), "content\n");
}
