// Worker threads of node go on working.
const { Worker } = require('worker_threads');
const code = 'require("worker_threads").parentPort.postMessage(42)';
new Worker(code, { eval: true }).on('message', (value) => console.log(`worker: ${value}`));
