//! Package managers without a network: a wheel and a tarball that lie in the project.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{directory, exec};
use crate::{found, in_project, lacks, needs, says};

fn on_the_host(at: &Path, program: &str, words: &[&str]) {
    let output = Command::new(program).current_dir(at).args(words).output().expect(program);
    assert!(output.status.success(), "{program}: {output:?}");
}

#[test]
fn pip_installs_a_wheel_of_the_project() {
    needs!(Userns, Python);
    if exec("python", &["python3", "-c", "import ensurepip"]).code != 0 {
        return lacks("ensurepip");
    }
    let project = directory();
    let info = project.path().join("answer-1.0.dist-info");
    fs::create_dir(&info).expect("dist-info");
    fs::write(project.path().join("answer.py"), "value = 42\n").expect("answer.py");
    fs::write(info.join("METADATA"), "Metadata-Version: 2.1\nName: answer\nVersion: 1.0\n")
        .expect("METADATA");
    fs::write(
        info.join("WHEEL"),
        "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    .expect("WHEEL");
    fs::write(
        info.join("RECORD"),
        "answer.py,,\nanswer-1.0.dist-info/METADATA,,\nanswer-1.0.dist-info/WHEEL,,\nanswer-1.0.dist-info/RECORD,,\n",
    )
    .expect("RECORD");
    let wheel = "answer-1.0-py3-none-any.whl";
    on_the_host(
        project.path(),
        "python3",
        &["-m", "zipfile", "-c", wheel, "answer.py", "answer-1.0.dist-info"],
    );
    let script = format!(
        "python3 -m venv v && v/bin/pip install -q --no-index --disable-pip-version-check /project/{wheel} && \
         cd v && bin/python -c 'import answer; print(answer.value, answer.__file__.startswith(\"/workspace/v\"))'"
    );
    let ran = in_project("python", project.path(), &["sh", "-c", &script]);
    says(&ran, "42 True\n");
}

#[test]
fn npm_installs_a_tarball_of_the_project() {
    needs!(Userns, Node);
    if !found("node", &["npm"]) {
        return;
    }
    let project = directory();
    let package = project.path().join("package");
    fs::create_dir(&package).expect("package");
    fs::write(package.join("package.json"), r#"{"name": "answer", "version": "1.0.0"}"#)
        .expect("package.json");
    fs::write(package.join("index.js"), "module.exports = 42").expect("index.js");
    on_the_host(project.path(), "tar", &["-czf", "answer.tgz", "package"]);
    let script = "npm install --offline --no-audit --no-fund --silent /project/answer.tgz && \
                  node -p 'require(\"answer\") + require.resolve(\"answer\")'";
    let ran = in_project("node", project.path(), &["sh", "-c", script]);
    says(&ran, "42/workspace/node_modules/answer/index.js\n");
}
