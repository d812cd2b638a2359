// The Node agent: runs cells sent by the server inside one live isolate.
//
// The protocol is in ../README.md.  The work is V8's own: the inspector's
// `Runtime.evaluate` in REPL mode knows top-level await, redeclaration of let, const
// and class, and the value of the last expression.  We connect to our own inspector;
// no port is opened.  What V8 leaves to us: `import` (see `rewriteImports`), SIGINT
// (see the end) and reports without our own frames.

'use strict';

const fs = require('node:fs');
const inspector = require('node:inspector');
const Module = require('node:module');
const path = require('node:path');
const util = require('node:util');
const vm = require('node:vm');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

const PROTOCOL = 1;
const INTERRUPTED = 130;
const INTERRUPTING = -1;
const RUNNING = 0; // places of the memory shared by our threads: the running call, ...
const SIGNALS = 1; // ... and how many SIGINTs there were
const REQUESTS = 3; // node itself marks inherited descriptors close-on-exec at its start
const REPLIES = 4;
const INTERRUPT = Symbol.for('nix-sandbox-mcp.interrupt');

// Bound before user code can put something else in their place.
const { process, setImmediate, Atomics, Buffer, String, Number, Object, SyntaxError, Error } = globalThis;
const { inspect, types: { isNativeError, isPromise } } = util;
const { nextTick } = process;

function main() {
  const shared = new Int32Array(new SharedArrayBuffer(8));
  const agent = new Agent(openStream('stdout', 1), openStream('stderr', 2), shared);
  const threads = ['watcher', 'interrupter'].map((role) => new Worker(__filename, { workerData: { role, shared } }));
  let awaited = threads.length;
  for (const thread of threads) {
    thread.once('message', () => { // once both are there, SIGINT is harmless
      thread.unref();
      if (--awaited === 0) agent.serve();
    });
  }
}

// ---------------------------------------------------------------- one call after another

class Agent {
  constructor(out, err, shared) {
    this.out = out;
    this.err = err;
    this.shared = shared;
    this.calls = 0;
    this.call = null; // the running one: { ident, nonce, name, failed }
    this.session = new inspector.Session();
    this.session.connect();
    this.settle = this.handleFor((value, failed) => this.settled(value, failed));
    this.prepareGlobals();
    prepareStacks();
    process.on('uncaughtException', (error) => this.report(error));
    process.on('unhandledRejection', (error) => this.report(error));
    process.on('exit', (code) => {
      if (this.call) this.say('end', this.call.ident, this.call.nonce, code & 0xff);
    });
  }

  serve() {
    readFrames(REQUESTS, (frame) => this.run(frame), () => process.exit(0));
    this.say('ready', PROTOCOL);
  }

  say(...words) {
    try {
      writeAll(REPLIES, Buffer.from(words.join(' ') + '\n'));
    } catch {
      process.reallyExit(1); // the wire was closed under us: end, rather than answer wrongly
    }
  }

  run({ ident, nonce, source }) {
    this.call = { ident, nonce, name: `cell-${ident}`, failed: false };
    this.state(++this.calls);
    this.attempt(this.call, source, rewriteImports(source));
  }

  // What the watcher goes by: the number of the running call, 0, or INTERRUPTING.
  state(value) {
    Atomics.store(this.shared, RUNNING, value);
    Atomics.notify(this.shared, RUNNING);
  }

  // V8 refuses to declare a name anew in another way (a let over a var, say), before it
  // runs anything.  Then other words for this one's declaration get their try, and so on
  // with the next one: at most twice for each name.
  attempt(call, source, script, tried = new Map()) {
    this.evaluate(call, soften(script, tried), (response) => {
      const name = redeclared(response);
      if (!name) return this.evaluated(call, source, response);
      const { kind: last, refusal = response } = tried.get(name) ?? {};
      const kind = nextKind(name, last);
      if (!kind) return this.evaluated(call, source, refusal);
      tried.set(name, { kind, refusal });
      setImmediate(() => { // a cell with many names would fill the stack
        if (this.call === call) this.attempt(call, source, script, tried);
      });
    });
  }

  evaluate(call, source, done) {
    this.session.post('Runtime.evaluate', {
      expression: `${source}\n//# sourceURL=${call.name}`,
      replMode: true,
      awaitPromise: true,
    }, (_, response) => {
      if (this.call === call) done(response); // else it was interrupted meanwhile
    });
  }

  evaluated(call, source, { result, exceptionDetails }) {
    if (isRefusal(exceptionDetails)) this.err.write(position(call.name, source, exceptionDetails));
    this.send(exceptionDetails?.exception ?? result, Boolean(exceptionDetails));
  }

  // Brings a value from the inspector's world of handles into ours.
  send(remote, failed) {
    const { objectId, unserializableValue, value } = remote;
    this.session.post('Runtime.callFunctionOn', {
      objectId: this.settle,
      functionDeclaration: 'function (value, failed) { this(value, failed); }',
      arguments: [objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value },
        { value: failed }],
    }, () => objectId && this.session.post('Runtime.releaseObject', { objectId }));
  }

  // A function of ours as a handle that no user code can reach.
  handleFor(callback) {
    let handle;
    globalThis[INTERRUPT] = callback;
    this.session.post('Runtime.evaluate', {
      expression: `globalThis[Symbol.for(${JSON.stringify(INTERRUPT.description)})]`,
    }, (_, { result }) => { handle = result.objectId; });
    delete globalThis[INTERRUPT];
    return handle;
  }

  settled(value, failed) {
    const call = this.call;
    if (failed) {
      this.report(value);
    } else if (isPromise(value)) { // `main()` as last line: its output belongs here
      return void value.then(
        (result) => { if (this.call === call) this.settled(result, false); },
        (error) => { if (this.call === call) this.settled(error, true); });
    } else if (value !== undefined) {
      this.out.write(describe(value) + '\n');
    }
    // A turn later, so that rejections nobody handled are still counted here.
    setImmediate(() => this.finish(call, call.failed ? 1 : 0));
  }

  finish(call, status) {
    if (this.call !== call) return;
    this.state(0);
    this.call = null;
    this.say('done', call.ident, call.nonce, status);
  }

  report(error) {
    if (this.call) this.call.failed = true;
    const text = describe(error);
    // Without frames an error is put into brackets, which only tell it from a text.
    this.err.write(`Uncaught ${isNativeError(error) ? text.replace(/^\[([^]*?)\]($| {\n)/, '$1$2') : text}\n`);
  }

  // Called by the watcher in the middle of whatever the main thread does, again and again
  // until the call is over: V8 at times ends this function only.
  interrupt(number, urgent) {
    const state = Atomics.load(this.shared, RUNNING);
    if (state !== number && state !== INTERRUPTING) return;
    const busy = stackBelow();
    if (state === number) {
      // Inside a function of node's own, that would be left half done: wait a little.
      if (!urgent && busy.length > 0 && !isUsers(busy[0])) return;
      this.state(INTERRUPTING);
      this.call = { ...this.call, failed: true }; // what the old one still says is stale
      this.err.write(['Interrupted', ...busy.filter(isUsers)].join(FRAME) + '\n');
    }
    const { call } = this;
    setImmediate(() => this.finish(call, INTERRUPTED));
    // Cannot be caught, and ends everything on the stack, this function included.  With
    // nothing there to end it would hit whatever comes next.
    if (busy.length > 0) this.session.post('Runtime.terminateExecution');
  }

  prepareGlobals() {
    const { load, module, require } = importer(path.join(process.cwd(), 'cell.js'));
    require.main = module; // `if (require.main === module)` holds in a cell
    Object.assign(globalThis, { require, module, exports: module.exports });
    hide('__import', load);
    hide(INTERRUPT, (number, urgent) => this.interrupt(number, urgent));
  }
}

// The agent's names on the global object: not listed, not to be removed.
function hide(name, value) {
  Object.defineProperty(globalThis, name, { value });
}

function readFrames(fd, onFrame, onEnd) {
  const { Socket } = require('node:net');
  let buffer = Buffer.alloc(0);
  const socket = new Socket({ fd, readable: true, writable: false });
  socket.on('data', (chunk) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (;;) {
      const eol = buffer.indexOf(10);
      if (eol < 0) return;
      const [verb, ident, nonce, length] = buffer.toString('latin1', 0, eol).split(' ');
      if (verb !== 'run') return onEnd();
      const end = eol + 1 + Number(length);
      if (buffer.length < end) return;
      const source = buffer.toString('utf8', eol + 1, end);
      buffer = buffer.subarray(end);
      onFrame({ ident, nonce, source });
    }
  });
  socket.on('end', onEnd);
  socket.on('error', onEnd);
}

// ---------------------------------------------------------------- output

// Node's own pipe streams lose what is not yet written at process.exit, and make the
// pipe non-blocking for child processes too.  These write at once and completely, and
// have no state in between that an interrupt could leave behind.
function openStream(name, fd) {
  const { Writable } = require('node:stream');
  const stream = new Writable({ autoDestroy: false, emitClose: false, write: (chunk, _, done) => attempt(chunk, done) });
  const attempt = (bytes, done) => {
    try {
      writeAll(fd, bytes);
      done();
    } catch (error) { // a closed descriptor is no reason to die
      done(error);
    }
  };
  stream.write = (chunk, encoding, done) => {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
    attempt(bytes, (error) => done && nextTick(done, error));
    return true;
  };
  stream.fd = fd;
  stream.on('error', () => {});
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  return stream;
}

function writeAll(fd, bytes) {
  for (let from = 0; from < bytes.length;) {
    try {
      from += fs.writeSync(fd, bytes, from);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error; // a child made the pipe non-blocking
    }
  }
}

function describe(value) {
  try {
    return inspect(value);
  } catch (error) { // a getter or an inspect.custom of the user's that throws
    return `[${typeof value} that cannot be shown: ${String(error?.message)}]`;
  }
}

// ---------------------------------------------------------------- stacks

const FRAME = '\n    at ';

// Errors have no frames of ours or node's, whoever shows them.  They are cut where a stack is
// made, which user code may do itself instead, for a while: it goes on as before when that is
// undone, also by setting it to undefined.
function prepareStacks() {
  const { toString } = Error.prototype;
  const format = Error.prepareStackTrace ?? ((error, trace) => [toString.call(error), ...trace].join(FRAME));
  const own = (error, trace) => format(error, trace.filter(isUsers));
  let prepare = own;
  Object.defineProperty(Error, 'prepareStackTrace', {
    configurable: true,
    enumerable: true,
    get: () => prepare,
    set: (value) => { prepare = value ?? own; },
  });
}

function isUsers(frame) {
  const file = frame.getFileName();
  return file !== __filename && !file?.startsWith('node:');
}

// The frames that were running when the watcher's expression came on top of them.
function stackBelow() {
  const { stackTraceLimit, prepareStackTrace } = Error;
  Object.assign(Error, { stackTraceLimit: 100, prepareStackTrace: (_, trace) => trace });
  const frames = new Error().stack;
  Object.assign(Error, { stackTraceLimit, prepareStackTrace });
  return frames.slice(frames.findLastIndex((frame) => frame.getScriptNameOrSourceURL() === INTERRUPT.description) + 1);
}

// cell-3:1:12, the line itself, and a caret: V8 tells where, but only on the side.
function position(name, source, { lineNumber, columnNumber }) {
  const lines = source.split('\n');
  if (lineNumber >= lines.length) {
    lineNumber = lines.length - 1;
    columnNumber = lines[lineNumber].length;
  }
  return `${name}:${lineNumber + 1}:${columnNumber + 1}\n${lines[lineNumber]}\n${' '.repeat(columnNumber)}^\n`;
}

// ---------------------------------------------------------------- rewriting

// Evaluated code has neither static imports nor a resolver for dynamic ones.  So
// `import` becomes a call of `__import`, which resolves as a file in the working
// directory would.  Line numbers stay.
function rewriteImports(source) {
  if (!/\bimport\b/.test(source)) return source;
  return splice(source, [...tokens(source)].filter(({ text }) => text === 'import').map(({ at, depth }) => {
    DYNAMIC.lastIndex = STATIC.lastIndex = at;
    const dynamic = DYNAMIC.exec(source);
    if (dynamic) return { at, length: 'import'.length, text: '__import' };
    const found = depth === 0 && STATIC.exec(source);
    if (!found) return null;
    return { at, length: found[0].length, text: dynamicForm(found) + '\n'.repeat(found[0].split('\n').length - 1) };
  }));
}

const DYNAMIC = /import(?:\s|\/\*[^]*?\*\/)*\(/y;
const STATIC = new RegExp(String.raw`import\b\s*`
  + String.raw`(?:(?<whole>[\w$]+)?\s*,?\s*(?:\*\s*as\s+(?<space>[\w$]+)|\{(?<names>[^}]*)\})?\s*from\s*)?`
  + String.raw`(?<spec>'[^'\n]*'|"[^"\n]*")\s*(?:(?:with|assert)\s*(?<with>\{[^}]*\}))?[ \t]*;?`, 'y');

function dynamicForm({ groups: { whole, space, names, spec, with: attributes } }) {
  const wanted = (names ?? '').replace(/\/\*[^]*?\*\/|\/\/.*/g, '').split(',').map((each) => each.trim()).filter(Boolean)
    .map((each) => each.split(/\s+as\s+/));
  if (whole) wanted.push(['default', whole]);
  const load = `await __import(${spec}, ${attributes ? `{ with: ${attributes} }` : 'undefined'}, `
    + `[${wanted.map(([name]) => (/^['"]/.test(name) ? name : `'${name}'`)).join(', ')}])`;
  const pattern = `{ ${wanted.map(([name, alias]) => `${name}: ${alias ?? name}`).join(', ')} }`;
  if (space) return `const ${space} = ${load}${wanted.length ? `, ${pattern} = ${space}` : ''};`;
  return wanted.length ? `const ${pattern} = ${load};` : `${load};`;
}

// A cell with other words for the declarations of some names, as far as it can be done.
// A let never becomes a const, as somebody may want to assign to it.
function soften(source, names) {
  if (names.size === 0) return source;
  let last; // the word that goes on where there is a comma
  return splice(source, declarations(source).flatMap((each) => {
    const wanted = names.get(each.names.find((name) => names.has(name)))?.kind;
    if (!each.word) return wanted ? asValue(each, wanted) : [];
    const kind = !wanted || wanted === 'const' ? each.word : wanted;
    const text = !each.comma ? kind : kind === last ? ',' : `; ${kind} `;
    last = kind;
    const changes = [{ at: each.at, length: each.length, text }];
    // A var without a value would keep the old one.
    if (each.bare && each.word === 'let' && kind === 'var') changes.push({ at: each.end, length: 0, text: ' = undefined' });
    return changes;
  }));
}

// A function or class as the value of a name.
function asValue({ at, end, names: [name] }, kind) {
  return [{ at, length: 0, text: `${kind} ${name} = ` }, { at: end, length: 0, text: ';' }];
}

// What a cell declares at its top level: functions and classes with their ends, and of every
// `let`, `const` and `var` each binding by itself, be it behind the word or behind a comma;
// it is bare if it is a name without a value.
function declarations(source) {
  const found = [];
  let word = null; // whose list of bindings goes on
  let binding = null; // whose names are read
  let body = null; // the function or class whose end is to come
  const bind = (at, length, comma) => found.push(binding = { word, comma, at, length, names: [] });
  for (const { text, at, depth, first } of tokens(source)) {
    const end = at + text.length;
    if (depth > 0) {
      if (binding && NAME.test(text) && !isKey(source, end)) binding.names.push(text);
    } else if (first || text === ';') {
      word = LIST.test(text) ? text : null;
      binding = body = null;
      if (word) bind(at, text.length, false);
      DEFINITION.lastIndex = at;
      const name = DEFINITION.exec(source)?.[1];
      if (name) found.push(body = { at, end: source.length, names: [name] });
    } else if (body && text === '}') {
      body.end = end;
      body = null;
    } else if (word && text === ',') {
      bind(at, text.length, true);
    } else if (binding && text === '=') {
      binding.bare = false;
      binding = null;
    } else if (binding && NAME.test(text)) {
      binding.names.push(text);
      Object.assign(binding, { bare: true, end });
    }
  }
  return found;
}

const LIST = /^(?:let|const|var)$/;
const DEFINITION = /(?:class|(?:async\s+)?function)\b\s*\*?\s*([\w$]+)/y;
const NAME = /^[\p{ID_Start}$_]/u;

// Whether it is a property that is taken apart, and not the name of what was in it.
function isKey(source, end) {
  return /^\s*:/.test(source.slice(end, end + 80));
}

// V8 knows a name either as a property of the global object that cannot be removed, as var and
// function make it, or as one of let, const and class.
function nextKind(name, kind) {
  if (kind) return kind === 'let' ? 'const' : null;
  return Object.getOwnPropertyDescriptor(globalThis, name)?.configurable === false ? 'var' : 'let';
}

function redeclared({ exceptionDetails }) {
  if (!isRefusal(exceptionDetails)) return undefined;
  return /^SyntaxError: Identifier '(.+?)' has already been declared/.exec(exceptionDetails.exception.description)?.[1];
}

// Whether a cell was refused before any of it ran.  What runs fails in a promise, of which V8
// knows more than the script, or less.
function isRefusal(details) {
  return details?.exception?.className === 'SyntaxError' && Boolean(details.scriptId) && !details.stackTrace;
}

function splice(source, changes) {
  let result = '';
  let from = 0;
  for (const change of changes) {
    if (!change || change.at < from) continue;
    result += source.slice(from, change.at) + change.text;
    from = change.at + change.length;
  }
  return result + source.slice(from);
}

// Every word and sign of the code proper (not of strings, templates, comments, regular
// expressions, and no word after a dot), with its bracket depth and whether it is a word that
// may start a statement.  Tokens only, no grammar.
const TOKEN = new RegExp([
  String.raw`(?<blank>\s+|\/\/.*|\/\*[^]*?\*\/|^#!.*)`,
  String.raw`(?<string>'(?:\\[^]|[^'\\\n])*'?|"(?:\\[^]|[^"\\\n])*"?)`,
  String.raw`(?<word>[\p{ID_Start}$_#@][\p{ID_Continue}$\u200c\u200d]*)`,
  String.raw`(?<number>\.?\d[\w.]*)`,
  String.raw`(?<other>=>|\+\+|--|\?\.|\.\.\.|[^])`,
].join('|'), 'uy');
const REGEX = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/\w*/y;
const TEMPLATE = /(?:\\[^]|\$(?!\{)|[^`\\$])*(`|\$\{|$)/y;
const BEFORE_REGEX = /^(?:return|typeof|case|in|of|delete|void|throw|new|do|else|instanceof|await|yield)$/;
const VALUE_END = /^(?:[)\]}`'"]|\+\+|--|[\w$])/u;

function* tokens(source) {
  const open = []; // brackets around the current place; '${' where a template waits
  let before = ''; // the last token that is neither blank nor comment
  let newline = true;
  for (let at = 0; at < source.length;) {
    TOKEN.lastIndex = at;
    const { 0: text, groups } = TOKEN.exec(source);
    let end = at + text.length;
    if (groups.blank) {
      newline ||= text.includes('\n');
      at = end;
      continue;
    }
    const template = text === '`' || (text === '}' && open.at(-1) === '${');
    if (groups.word && before !== '.' && before !== '?.') {
      const first = before === '' || before === ';' || before === '}' || (newline && VALUE_END.test(before) && !BEFORE_REGEX.test(before));
      yield { text, at, depth: open.length, first };
    } else if (text === '/' && (before === '' || before === '}' || !VALUE_END.test(before) || BEFORE_REGEX.test(before))) {
      REGEX.lastIndex = at;
      end = REGEX.exec(source) ? REGEX.lastIndex : end;
    } else if (template) {
      if (text === '}') open.pop();
      TEMPLATE.lastIndex = end;
      if (TEMPLATE.exec(source)[1] === '${') open.push('${');
      end = TEMPLATE.lastIndex;
    } else if ('([{'.includes(text)) {
      open.push(text);
    } else if (')]}'.includes(text)) {
      open.pop();
      yield { text, at, depth: open.length, first: false };
    } else if (',;='.includes(text)) {
      yield { text, at, depth: open.length, first: false };
    }
    before = text;
    if (template) before = open.at(-1) === '${' && source[end - 1] === '{' ? '(' : '`';
    else if (groups.number || (text === '/' && end > at + 1)) before = '0'; // any plain value
    newline = false;
    at = end;
  }
}

// `import` and `require` as a module in the working directory has them, without such a file.
function importer(filename) {
  const module = new Module(filename, null);
  module.filename = filename;
  module.paths = Module._nodeModulePaths(path.dirname(filename));
  module._compile('module.exports = { load: (name, options) => import(name, options), require };', filename);
  const { load, require } = module.exports;
  module.exports = {};
  return {
    module,
    require,
    async load(name, options, wanted = []) {
      const space = await load(name, options);
      for (const each of wanted) {
        if (!(each in space)) throw new SyntaxError(`The requested module '${name}' does not provide an export named '${each}'`);
      }
      return space;
    },
  };
}

// ---------------------------------------------------------------- SIGINT

// Two threads, because the main one may be inside `while (true) {}`.  `breakOnSigint` is
// how a thread that is no main thread hears of a signal; as it breaks whatever that
// thread does, the watcher does nothing but count.  One use inside another keeps node's
// handler in place while the innermost is between two waits, and the next one, and so on:
// with none in place SIGINT would end the process.
function watchForSignals({ shared }) {
  const never = new Int32Array(new SharedArrayBuffer(4));
  globalThis.wait = () => Atomics.wait(never, 0, 0);
  globalThis.watch = (depth) => {
    if (depth === 0) parentPort.postMessage('ready');
    for (;;) countSignal(depth === 0 ? 'wait()' : `watch(${depth - 1})`);
  };
  const countSignal = (code) => {
    try {
      vm.runInThisContext(code, { breakOnSigint: true });
    } catch {
      Atomics.add(shared, SIGNALS, 1);
      Atomics.notify(shared, SIGNALS);
    }
  };
  globalThis.watch(5);
}

function answerSignals({ shared }) {
  parentPort.postMessage('ready');
  for (let seen = 0; ;) {
    Atomics.wait(shared, SIGNALS, seen);
    seen = Atomics.load(shared, SIGNALS);
    interruptMain(shared);
  }
}

// Asks a few times for a good moment, then insists.
function interruptMain(shared) {
  const number = Atomics.load(shared, RUNNING);
  if (number <= 0) return; // between calls
  // Connected only for this while: at exit, node waits for sessions from elsewhere.
  const session = new inspector.Session();
  session.connectToMainThread();
  const interrupt = `globalThis[Symbol.for(${JSON.stringify(INTERRUPT.description)})]`;
  for (let tries = 1; tries <= 200; tries++) {
    session.post('Runtime.evaluate', {
      expression: `${interrupt}(${number}, ${tries > 20})\n//# sourceURL=${INTERRUPT.description}`,
    });
    Atomics.wait(shared, RUNNING, Atomics.load(shared, RUNNING), 5);
    const state = Atomics.load(shared, RUNNING);
    if (state !== number && state !== INTERRUPTING) break;
  }
  session.disconnect();
}

if (isMainThread) main();
else if (workerData.role === 'watcher') watchForSignals(workerData);
else answerSignals(workerData);
