// The server as the official TypeScript SDKs and the Inspector see it; see `run`.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { Client as NewClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewTransport } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const server = { command: process.env.NIX_SANDBOX_BIN, args: ["--stdio"] };
const me = { name: "test", version: "1" };

// Every generation: how a client of it is made, and how it calls a tool with options.
const generations = {
  "SDK 1": () => ({
    client: new OldClient(me),
    transport: new OldTransport(server),
    call: (client, params, options) => client.callTool(params, undefined, options),
  }),
  "SDK 2, with a handshake": () => ({
    client: new NewClient(me),
    transport: new NewTransport(server),
    call: (client, params, options) => client.callTool(params, options),
  }),
  "SDK 2, 2026-07-28": () => ({
    client: new NewClient(me, { versionNegotiation: { mode: { pin: "2026-07-28" } } }),
    transport: new NewTransport(server),
    call: (client, params, options) => client.callTool(params, options),
  }),
};

const tests = {
  async "one tool is listed"({ client }) {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name), ["run"]);
    assert.deepEqual(tools[0].inputSchema.required, ["code", "env"]);
    assert.equal(tools[0].outputSchema, undefined);
    assert.equal(client.getServerVersion().name, "nix-sandbox-mcp");
  },

  async "a result has text, facts and no structure"({ run }) {
    const result = await run({ env: "shell", code: "echo out; echo err >&2; exit 3" });
    assert.match(result.content[0].text, /^out\n--- stderr ---\nerr\n\[exit 3 · /);
    assert.equal(result.isError, true);
    assert.equal(result.structuredContent, undefined);
    assert.deepEqual(result._meta["nix-sandbox-mcp/outcome"].ending, { kind: "exited", code: 3 });
  },

  async "a session keeps its state"({ run }) {
    await run({ env: "shell", code: "x=42", session: "s" });
    const result = await run({ env: "shell", code: "echo $x", session: "s" });
    assert.match(result.content[0].text, /^42\n\[exit 0 · /);
  },

  async "progress keeps a client waiting"({ run }) {
    const told = [];
    const options = {
      onprogress: (progress) => told.push(progress),
      timeout: 3500,
      resetTimeoutOnProgress: true,
    };
    const code = "echo working; sleep 6; echo done";
    const result = await run({ env: "shell", code, timeout: 30 }, options);
    assert.match(result.content[0].text, /^working\ndone\n/);
    assert.match(told[0].message, /^2 s · working$/);
  },

  async "a call that is given up is ended"({ run }) {
    await run({ env: "shell", code: "x=42", session: "s" });
    const giveUp = new AbortController();
    const call = run({ env: "shell", code: "sleep 60", session: "s" }, { signal: giveUp.signal });
    setTimeout(() => giveUp.abort("enough"), 500);
    await assert.rejects(call);
    const result = await run({ env: "shell", code: "echo $x", session: "s" });
    assert.match(result.content[0].text, /^42\n\[exit 0 · /);
  },

  async "wrong arguments are advice"({ run }) {
    const result = await run({ env: "cobol", code: "" });
    assert.equal(result.isError, true);
    assert.match(result.content[0].text, /the environments are /);
  },
};

async function connected(generation, test) {
  const { client, transport, call } = generations[generation]();
  await client.connect(transport);
  try {
    const run = (args, options) => call(client, { name: "run", arguments: args }, options);
    await test({ client, run });
  } finally {
    await client.close();
  }
}

async function inspect(...args) {
  const words = ["--cli", server.command, ...args];
  const { stdout } = await promisify(execFile)("mcp-inspector", words, { timeout: 60_000 });
  return JSON.parse(stdout);
}

const inspector = {
  async "the Inspector lists one tool"() {
    const { tools } = await inspect("--method", "tools/list");
    assert.deepEqual(tools.map((tool) => tool.name), ["run"]);
  },

  async "the Inspector calls it"() {
    const call = ["--method", "tools/call", "--tool-name", "run"];
    const result = await inspect(...call, "--tool-arg", "env=shell", "--tool-arg", "code=echo 42");
    assert.match(result.content[0].text, /^42\n\[exit 0 · /);
  },
};

const all = Object.keys(generations).flatMap((generation) =>
  Object.entries(tests).map(([name, test]) => [`${generation}: ${name}`, () => connected(generation, test)]),
);
let passed = 0;
let failed = 0;
for (const [name, test] of [...all, ...Object.entries(inspector)]) {
  try {
    await test();
    passed += 1;
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(error);
    console.log(`FAIL ${name}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
