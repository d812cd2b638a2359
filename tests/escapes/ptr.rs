//! Group 4: tampering with pid 1, with siblings and with agents.

use super::server::Server;
use crate::needs;

const SCOPES: &str =
    "before Landlock's ABI 6 (Linux 6.12) the signal is taken, and pid 1 ignores it";

entries! {
    ptr_01_ptrace: "PTR-01" "ptr/PTR-01.py" =>
        "SEIZE 1: EPERM\nATTACH 1: EPERM\nSEIZE sibling: EPERM\nTRACEME: EPERM\n";
    ptr_02_memory_of_others: "PTR-02" "ptr/PTR-02.py" =>
        "process_vm_readv 1: EPERM\nprocess_vm_writev 1: EPERM\nprocess_vm_readv sibling: EPERM\n\
         process_vm_writev sibling: EPERM\n";
    ptr_03_proc_mem: "PTR-03" "ptr/PTR-03.py" => "\
        1/mem: EACCES\n1/maps: EACCES\n1/auxv: EACCES\n1/stack: EACCES\n1/syscall: EACCES\n\
        1/pagemap: EACCES\n1/mem for writing: EACCES\nsibling's mem for writing: ok\n";
    ptr_04_pidfd_getfd: "PTR-04" "ptr/PTR-04.py" => "pidfd_open: ok\npidfd_getfd: EPERM\n";
    ptr_05_descriptors_of_pid_1: "PTR-05" "ptr/PTR-05.py" =>
        "list: EACCES\nopen: EACCES\ncwd: EACCES\nroot: EACCES\nexe: EACCES\n";
    ptr_06_environments_and_arguments: "PTR-06" "ptr/PTR-06.py" =>
        "1/environ: EACCES\n1/cmdline: nothing\nsecrets: 0\n",
        variables: &[("SECRET", "hunter2")];
    ptr_08_signals: "PTR-08" "ptr/PTR-08.py" =>
        "kill(1, 9): {EPERM|ok}\nkill(1, 15): {EPERM|ok}\nkill(1, 19): {EPERM|ok}\n\
         kill(1, 0): {EPERM|ok}\npidfd_send_signal: {EPERM|ok}\nkill(-1, 9): ok\nsibling: SIGKILL\n\
         kill(0, 9) in a group: SIGKILL\npid 1: there\n",
        varies: SCOPES;
    ptr_11_becoming_another_program: "PTR-11" "ptr/PTR-11.py" => "replaced\n[exit 7]\n";
}

/// PTR-10: modules planted where an agent could import them later. It imports nothing from there, and
/// goes on.
#[test]
fn ptr_10_planted_modules() {
    needs!(Userns, Python);
    let mut server = Server::start(&[]);
    let plant = "for name in 'ast', 'codecs', 'json', 'linecache', 'sitecustomize', 'traceback', 're':\n \
                 with open(f'/workspace/{name}.py', 'w') as file: file.write('print(9)')";
    let quiet = (String::new(), "exit 0".to_owned());
    assert_eq!(server.tell("python", "a", plant), quiet);
    let (said, _) = server.tell("python", "a", "1/0");
    assert!(said.ends_with("ZeroDivisionError: division by zero"), "{said}");
    assert!(!said.contains('9'), "{said}");
    assert_eq!(
        server.tell("python", "a", "print('next')"),
        ("next".to_owned(), "exit 0".to_owned())
    );
}
