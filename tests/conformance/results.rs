//! What comes back: every byte of it, whatever it is.

use std::io::Write;
use std::process::Stdio;

use crate::needs;
use crate::support::{Capability, code, command, have};

/// The environments that this host can serve, with a program that prints 42.
fn environments() -> Vec<(&'static str, &'static str)> {
    let all = [
        ("shell", "echo 42", Capability::Userns),
        ("python", "print(6 * 7)", Capability::Python),
        ("node", "console.log(6 * 7)", Capability::Node),
    ];
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    all.iter().filter(|(_, _, needs)| have(&test, &[*needs])).map(|(n, c, _)| (*n, *c)).collect()
}

#[test]
fn every_environment_prints_42() {
    for (environment, program) in environments() {
        let ran = code(environment, &[], program.as_bytes());
        assert_eq!((ran.stdout.as_str(), ran.code), ("42\n", 0), "{environment} {ran:?}");
    }
}

#[test]
fn a_program_of_one_mebibyte_runs() {
    for (environment, program) in environments() {
        let comment = if environment == "node" { "//" } else { "#" };
        let line = format!("{comment} {}\n", "x".repeat(1000));
        let text = format!("{}{program}\n", line.repeat((1 << 20) / line.len() + 1));
        assert!(text.len() > 1 << 20);
        assert_eq!(code(environment, &[], text.as_bytes()).stdout, "42\n", "{environment}");
    }
}

#[test]
fn code_is_neither_argument_nor_input() {
    needs!(Userns);
    let ran = code("shell", &[], b"cat; echo SECOND LINE; tr '\\0' ' ' </proc/$$/cmdline");
    assert!(ran.stdout.starts_with("SECOND LINE\n"), "{}", ran.stdout);
    assert!(ran.stdout.trim_end().ends_with("/code/main.sh"), "{}", ran.stdout);
}

#[test]
fn code_arrives_byte_exact() {
    needs!(Userns);
    let mut program = b"tail -c +35 /code/main.sh | od -An -tx1; exit\n".to_vec();
    let tail: &[u8] = b"\x00\xff\r\n\n\n  ";
    program.extend_from_slice(tail);
    let start = program.len() - tail.len() + 1;
    let text = format!("tail -c +{start:02} /code/main.sh | od -An -tx1; exit\n");
    program[..text.len()].copy_from_slice(text.as_bytes());
    assert_eq!(code("shell", &[], &program).stdout, " 00 ff 0d 0a 0a 0a 20 20\n");
}

#[test]
fn invalid_utf_8_and_nul_come_back_exact_as_base64() {
    needs!(Userns);
    let ran = code("shell", &[], b"printf 'a\\377\\376\\000b'");
    assert_eq!(ran.json["stdout"]["bytes"], 5);
    assert_eq!(ran.json["stdout"]["base64"], "Yf/+AGI=");
    assert_eq!(ran.stdout, "a\u{fffd}\u{fffd}\0b");
}

#[test]
fn both_streams_are_drained_at_once() {
    needs!(Userns);
    let ran = code(
        "shell",
        &[],
        b"head -c 200000 /dev/zero | tr '\\0' e >&2; head -c 200000 /dev/zero | tr '\\0' o; exit 3",
    );
    assert_eq!(ran.code, 3);
    assert_eq!((ran.stdout.len(), ran.stderr.len()), (200_000, 200_000));
}

#[test]
fn exec_passes_three_mebibytes_through_unchanged() {
    needs!(Userns);
    let data: Vec<u8> =
        (0..3_u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let mut command = command();
    command.args(["exec", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    let sent = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().expect("output");
    writer.join().expect("writer").expect("write");
    assert!(output.stdout == data, "{} bytes came back", output.stdout.len());
}
