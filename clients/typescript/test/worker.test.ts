import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import type { Agent } from "../src/index.js";
import { PromptKind } from "../src/v1.js";
import { noSupervisor, Supervisor, workerProgram } from "./supervisor.js";

const settings = `
[roles.ts]
worker = "command"
command = [${JSON.stringify(process.execPath)}, ${JSON.stringify(workerProgram)}]
`;

describe("a worker in TypeScript", { skip: noSupervisor }, () => {
  let supervisor: Supervisor;
  before(async () => {
    supervisor = await Supervisor.start(settings);
  });
  after(async () => {
    await supervisor[Symbol.asyncDispose]();
  });

  /** The sub-agent's first answer, from what its starter is told. */
  async function answer(agent: Agent): Promise<string> {
    for (;;) {
      const turn = await agent.nextTurn({ timeoutMs: 20_000 });
      assert.ok(turn, "no answer came");
      await agent.endTurn(turn.turnId, "");
      const said = turn.prompts.find(({ kind }) => kind === PromptKind.WATCH_ANSWER);
      if (said !== undefined) {
        return said.text;
      }
    }
  }

  /** Lets the sub-agent come to where its script parks. */
  async function parked(agent: Agent, subAgentId: string, name: string) {
    const client = supervisor.client();
    for await (const event of client.events({ startRevision: 1, agents: [subAgentId] })) {
      if (event.name === name) {
        break;
      }
    }
    client.close();
    assert.equal((await agent.info()).watching[0], subAgentId);
  }

  async function delegate(script: readonly string[], park: string): Promise<[Agent, string]> {
    const agent = await supervisor.client().openAgent();
    const { subAgentId } = await agent.startAgent(script.join("\n"), { role: "ts" });
    await parked(agent, subAgentId, park);
    return [agent, subAgentId];
  }

  it("answers a message while it is parked behind a background tool", async () => {
    const script = ["on_message final got {body}", "shell sleep 60", "await_message"];
    const [agent, subAgentId] = await delegate(script, "call.backgrounded");
    await agent.message(subAgentId, "wake <up>");
    assert.match(await answer(agent), /got wake <up>/);
    const { endedCalls, receipt } = await agent.stop({ graceMs: 0 });
    assert.equal(endedCalls, 1);
    assert.deepEqual(receipt?.survivingPids, []);
  });

  it("answers a message while it is blocked in a wait", async () => {
    const script = ["on_message final heard {body}", "shell sleep 60", "wait 1"];
    const [agent, subAgentId] = await delegate(script, "wait.installed");
    await agent.message(subAgentId, "now");
    assert.match(await answer(agent), /heard now/);
    await agent.stop({ graceMs: 0 });
  });

  it("is a call whose answer is the result", async () => {
    const agent = await supervisor.client().openAgent();
    const script = "shell echo deep\nfinal said: {out}";
    await agent.startAgent(script, { role: "ts", mode: "call", callId: "c" });
    const { result } = await agent.waitExact("c", { timeoutMs: 20_000 });
    assert.match(result?.answer ?? "", /said: status: 0\n\nout deep/);
    await agent.stop({ graceMs: 0 });
  });

  it("has sub-agents of its own", async () => {
    const agent = await supervisor.client().openAgent();
    const script = [
      "agent call ts",
      "  status working inside",
      "  final inner",
      "wait",
      "final {out}",
    ];
    const options = { role: "ts", mode: "call", callId: "c" } as const;
    await agent.startAgent(script.join("\n"), options);
    const { result } = await agent.waitExact("c", { timeoutMs: 20_000 });
    assert.match(result?.answer ?? "", /inner/);
    await agent.stop({ graceMs: 0 });
  });

  it("says what it does not understand", async () => {
    const agent = await supervisor.client().openAgent();
    await agent.startAgent("dance", { role: "ts", mode: "call", callId: "c" });
    const { result } = await agent.waitExact("c", { timeoutMs: 20_000 });
    assert.equal(result?.answer, "error: not a directive: 'dance'");
    await agent.stop({ graceMs: 0 });
  });

  it("keeps how far its answer has come when it is ended", async () => {
    const agent = await supervisor.client().openAgent();
    const script = "say so far\nshell echo marker\nsleep 60";
    const options = { role: "ts", mode: "call", callId: "c" } as const;
    const { subAgentId } = await agent.startAgent(script, options);
    const client = supervisor.client();
    const names = ["tool.result"];
    for await (const _ of client.events({ startRevision: 1, agents: [subAgentId], names })) {
      break;
    }
    await agent.cancel("c");
    const { result } = await agent.waitExact("c", { timeoutMs: 20_000 });
    assert.equal(result?.answer, "so far\n");
    await agent.stop({ graceMs: 0 });
  });
});
