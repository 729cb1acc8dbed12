import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { CallService, SupervisorService } from "../src/v1.js";
import { Fake } from "./fake.js";

/** A machine that is busy takes its time. */
async function until(condition: () => boolean): Promise<void> {
  const limit = performance.now() + 10_000;
  while (!condition()) {
    assert.ok(performance.now() < limit, `not within 10 s: ${condition}`);
    await sleep(5);
  }
}

describe("abort signals", () => {
  it("end a wait with their own reason, and the supervisor is told", async () => {
    let arrived = 0;
    let cancelled = 0;
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        wait: async (_, { signal }) => {
          arrived += 1;
          signal.addEventListener("abort", () => {
            cancelled += 1;
          });
          await sleep(10_000, undefined, { signal });
          return {};
        },
      }),
    );
    const agent = fake.client().agent("a");
    const abort = new AbortController();
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    const waits = Array.from({ length: 20 }, () =>
      agent.waitForInput({ signal: abort.signal }).catch((error) => error),
    );
    await until(() => arrived === 20);
    const reason = new Error("enough");
    abort.abort(reason);
    assert.deepEqual(new Set(await Promise.all(waits)), new Set([reason]));
    await until(() => cancelled === 20);
    process.off("warning", note);
    assert.deepEqual(warnings, []);
  });

  it("end the repeats while nobody is there", async () => {
    await using fake = await Fake.start(() => {});
    await fake.crash();
    const client = fake.client();
    await assert.rejects(client.info({ signal: AbortSignal.timeout(200) }), {
      name: "TimeoutError",
    });
  });

  it("end a stream; so does leaving its loop", async () => {
    let cancelled = 0;
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        async *readOutput(_, { signal }) {
          signal.addEventListener("abort", () => {
            cancelled += 1;
          });
          yield { data: new Uint8Array([1]) };
          await sleep(10_000, undefined, { signal });
        },
      }),
    );
    const agent = fake.client().agent("a");
    for await (const chunk of agent.output("c")) {
      assert.deepEqual(chunk.data, new Uint8Array([1]));
      break;
    }
    const abort = new AbortController();
    const reason = new Error("enough");
    await assert.rejects(async () => {
      for await (const _ of agent.output("c", { signal: abort.signal })) {
        abort.abort(reason);
      }
    }, reason);
    await until(() => cancelled === 2);
  });

  it("deadlines are for RPCs that answer at once", async () => {
    await using fake = await Fake.start((router) => {
      router.service(SupervisorService, {
        getInfo: async (_, { signal }) => {
          await sleep(10_000, undefined, { signal });
          return {};
        },
      });
      router.service(CallService, {
        wait: async () => {
          await sleep(500);
          return {};
        },
      });
    });
    const client = fake.client({ deadlineMs: 200 });
    await assert.rejects(client.info(), { code: "DEADLINE_EXCEEDED" });
    await client.agent("a").waitForInput();
  });
});
