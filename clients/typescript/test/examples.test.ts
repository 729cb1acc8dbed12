import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";

import { noSupervisor, Supervisor } from "./supervisor.js";

const program = (name: string) => resolve(`build/examples/${name}.js`);

describe("examples", { skip: noSupervisor }, () => {
  let supervisor: Supervisor;
  before(async () => {
    const command = JSON.stringify([process.execPath, program("worker")]);
    supervisor = await Supervisor.start(
      `[roles.counter]\nworker = "command"\ncommand = ${command}\n`,
    );
  });
  after(async () => {
    await supervisor[Symbol.asyncDispose]();
  });

  async function run(name: string): Promise<string> {
    const env = { ...process.env, PINFOLD_STATE: supervisor.state };
    const { stdout } = await promisify(execFile)(process.execPath, [program(name)], { env });
    return stdout;
  }

  it("first", async () => {
    const said = await run("first");
    assert.match(said, /exit code 3/);
    assert.match(said, /out built/);
  });

  it("follow", async () => {
    assert.match(await run("follow"), /processes ended, 0 left\n$/);
  });

  it("watch", async () => {
    assert.match(await run("watch"), /^\d+ supervisor\.started/m);
  });

  it("harness", async () => {
    const said = await run("harness");
    assert.match(said, /out quick/);
    assert.match(said, /original_tool_call_id: call-2\n.*out slow/s);
  });

  it("worker", async () => {
    const agent = await supervisor.client().openAgent();
    const options = { role: "counter", mode: "call", callId: "c" } as const;
    await agent.startAgent("one two three", options);
    let waited = await agent.waitExact("c", { timeoutMs: 20_000 });
    // What it reports is news for its starter.
    while (waited.interrupted) {
      const turn = await agent.nextTurn();
      await agent.endTurn(turn?.turnId ?? "", "");
      waited = await agent.waitExact("c", { timeoutMs: 20_000 });
    }
    assert.match(waited.result?.answer ?? "", /out \d+/);
    await agent.stop();
  });
});
