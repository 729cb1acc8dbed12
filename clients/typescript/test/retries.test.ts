import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  CallService,
  OutputStream,
  SupervisorService,
  WaitOutcome,
  WatchService,
} from "../src/v1.js";
import { Code, Fake, refusal } from "./fake.js";

describe("a lost connection", () => {
  it("repeats a run with the same call id", async () => {
    const ids: string[] = [];
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        runShell: async ({ callId }) => {
          ids.push(callId);
          if (ids.length < 3) {
            fake.dropConnections();
            await sleep(1000);
          }
          return { callId, answer: { case: "placeholder", value: "in the background" } };
        },
      }),
    );
    const answer = await fake.client().agent("a").run("true");
    assert.equal(answer.kind, "placeholder");
    assert.equal(ids.length, 3);
    assert.equal(new Set(ids).size, 1);
    assert.equal(answer.callId, ids[0]);
  });

  it("repeats a parked wait with the same wait id over a restart", async () => {
    const ids: string[] = [];
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        wait: async ({ waitId, timeout }, context) => {
          ids.push(waitId);
          if (ids.length === 1) {
            assert.equal(timeout?.seconds, 7n);
            await sleep(10_000, undefined, { signal: context.signal });
          }
          assert.ok(timeout !== undefined && Number(timeout.seconds) < 7);
          return { waitId, outcome: WaitOutcome.INTERRUPTED };
        },
      }),
    );
    const waiting = fake.client().agent("a").waitExact("c", { timeoutMs: 7000 });
    await sleep(200);
    await fake.crash();
    await sleep(300);
    await fake.listen();
    const answer = await waiting;
    assert.ok(answer.interrupted);
    assert.equal(ids.length, 2);
    assert.equal(ids[0], ids[1]);
  });

  it("loses and repeats no output", async () => {
    const text = new TextEncoder().encode("0123456789".repeat(1000));
    const offsets: number[] = [];
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        async *readOutput({ offset }) {
          offsets.push(Number(offset));
          for (let at = Number(offset); at < text.length; at += 1000) {
            yield {
              stream: OutputStream.OUT,
              offset: BigInt(at),
              data: text.slice(at, at + 1000),
            };
            await sleep(5);
            if (at === 3000 * offsets.length) {
              fake.dropConnections();
              await sleep(1000);
            }
          }
          yield { extent: { size: BigInt(text.length), closed: true } };
        },
      }),
    );
    const pieces: Uint8Array[] = [];
    for await (const chunk of fake.client().agent("a").output("c")) {
      assert.equal(chunk.stream, "out");
      pieces.push(chunk.data);
    }
    assert.deepEqual(Buffer.concat(pieces), Buffer.from(text));
    assert.ok(offsets.length >= 3, `${offsets}`);
  });

  it("resumes a watch behind what was seen, and a snapshot from its beginning", async () => {
    const starts: bigint[] = [];
    await using fake = await Fake.start((router) =>
      router.service(WatchService, {
        async *watch({ startRevision }) {
          starts.push(startRevision);
          if (starts.length === 1) {
            yield { snapshot: { agents: [{ agentId: "half" }] } };
            await sleep(20);
            fake.dropConnections();
            await sleep(1000);
          }
          if (startRevision === 0n) {
            yield { snapshot: {}, bookmark: { revision: 10n } };
            yield { events: [{ revision: 11n }, { revision: 12n }] };
            yield { progress: { revision: 20n } };
            await sleep(20);
            fake.dropConnections();
            await sleep(1000);
          }
          yield { events: [{ revision: startRevision }] };
        },
      }),
    );
    const revisions: bigint[] = [];
    for await (const event of fake.client().events()) {
      revisions.push(event.revision);
    }
    assert.deepEqual(revisions, [11n, 12n, 21n]);
    assert.deepEqual(starts, [0n, 0n, 21n]);
  });

  it("takes its own repeated cancel for accepted", async () => {
    let asked = 0;
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        cancelCall: async () => {
          asked += 1;
          if (asked === 1) {
            fake.dropConnections();
            await sleep(1000);
          }
          throw refusal(Code.FailedPrecondition, "CALL_ALREADY_CANCELED", "already canceled");
        },
      }),
    );
    const agent = fake.client().agent("a");
    assert.equal((await agent.cancel("c")).text, "Tool cancellation requested");
    await assert.rejects(agent.cancel("c"), { reason: "CALL_ALREADY_CANCELED" });
  });

  it("never repeats stop", async () => {
    let asked = 0;
    await using fake = await Fake.start((router) =>
      router.service(SupervisorService, {
        stop: async () => {
          asked += 1;
          fake.dropConnections();
          await sleep(1000);
          return {};
        },
      }),
    );
    await assert.rejects(fake.client().stop(), { code: "UNAVAILABLE" });
    assert.equal(asked, 1);
  });
});
