//! Node: threads, processes, cryptography, WebAssembly.

use crate::support::code;
use crate::{needs, says};

#[test]
fn worker_threads_share_memory_and_wait_on_it() {
    needs!(Userns, Node);
    let program = r"
const { Worker } = require('worker_threads');
const shared = new Int32Array(new SharedArrayBuffer(8));
const body = `const { workerData } = require('worker_threads');
  Atomics.add(workerData, 0, 21); Atomics.add(workerData, 1, 1); Atomics.notify(workerData, 1);`;
const done = [1, 2].map(() => new Promise(end =>
  new Worker(body, { eval: true, workerData: shared }).on('exit', end)));
Promise.all(done).then(codes => console.log(codes.join(), shared[0], shared[1]));
";
    says(&code("node", &[], program.as_bytes()), "0,0 42 2\n");
}

#[test]
fn child_processes_answer_by_pipe_status_and_message() {
    needs!(Userns, Node);
    let program = r#"
const { execFileSync, spawnSync, fork } = require('child_process');
console.log(String(execFileSync('cat', { input: 'through cat' })), spawnSync('sh', ['-c', 'exit 3']).status);
require('fs').writeFileSync('child.js', 'process.on("message", n => { process.send(n * 2); process.disconnect(); })');
const child = fork('./child.js'); child.on('message', n => console.log(n)); child.send(21);
"#;
    says(&code("node", &[], program.as_bytes()), "through cat 3\n42\n");
}

#[test]
fn crypto_signs_derives_and_hashes() {
    needs!(Userns, Node);
    let program = r"
const c = require('crypto');
const { publicKey, privateKey } = c.generateKeyPairSync('ed25519');
console.log(c.verify(null, 'text', publicKey, c.sign(null, 'text', privateKey)), c.randomBytes(16).length);
c.pbkdf2('password', 'salt', 1, 4, 'sha1', (_, key) => console.log(key.toString('hex')));
";
    says(&code("node", &[], program.as_bytes()), "true 16\n0c60c80f\n");
}

#[test]
fn web_assembly_is_compiled_and_has_its_reserved_memory() {
    needs!(Userns, Node);
    // (module (memory 1) (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add))
    let program = r"
const bytes = [0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,5,3,1,0,1,
  7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11];
WebAssembly.instantiate(new Uint8Array(bytes)).then(({ instance }) => console.log(instance.exports.add(40, 2)));
";
    says(&code("node", &[], program.as_bytes()), "42\n");
}
