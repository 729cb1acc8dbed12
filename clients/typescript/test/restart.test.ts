import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { noSupervisor, Supervisor } from "./supervisor.js";

describe("a supervisor that is killed and started again", { skip: noSupervisor }, () => {
  it("goes unnoticed by waits, output and watches", async () => {
    await using supervisor = await Supervisor.start();
    const client = supervisor.client();
    const agent = await client.openAgent("me");

    const revisions: bigint[] = [];
    const abort = new AbortController();
    const watching = (async () => {
      for await (const event of client.events({ startRevision: 1, signal: abort.signal })) {
        revisions.push(event.revision);
      }
    })().catch((error) => error);

    const { callId } = await agent.start("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done", {
      foregroundBudgetMs: 100,
    });
    const waiting = agent.waitExact(callId, { timeoutMs: 30_000 });
    let output = "";
    const reading = (async () => {
      for await (const chunk of agent.output(callId)) {
        output += Buffer.from(chunk.data);
      }
    })();

    await sleep(700);
    await supervisor.kill("SIGKILL");
    await sleep(300);
    await supervisor.up();

    const { result } = await waiting;
    assert.equal(result?.exitCode, 0);
    await reading;
    assert.equal(output, "1\n2\n3\n4\n5\n6\n7\n8\n");
    await agent.run("true");
    const { revision } = await client.info();
    while ((revisions.at(-1) ?? 0n) < revision) {
      await sleep(20);
    }
    abort.abort();
    await watching;
    assert.deepEqual(
      revisions,
      revisions.map((_, index) => BigInt(index + 1)),
    );
  });
});
