import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { runWorker } from "../src/index.js";
import { AgentService } from "../src/v1.js";
import { Code, Fake, refusal } from "./fake.js";

describe("runWorker", () => {
  it("answers turns until its agent is stopped, and acknowledges as it goes", async () => {
    const log: string[] = [];
    let turns = 0;
    await using fake = await Fake.start((router) =>
      router.service(AgentService, {
        nextTurn: ({ acknowledgeDeliveryId }) => {
          log.push(`next(${acknowledgeDeliveryId})`);
          turns += 1;
          if (turns === 3) {
            throw refusal(Code.FailedPrecondition, "AGENT_STOPPED", "the agent is stopped");
          }
          return {
            turnId: `t${turns}`,
            deliveryId: `d${turns}`,
            prompts: [{ text: `one ${turns}` }, { text: "two" }],
          };
        },
        takePrompts: ({ acknowledgeDeliveryId }) => {
          log.push(`take(${acknowledgeDeliveryId})`);
          return turns === 1
            ? { deliveryId: "d1b", prompts: [{ text: "late" }] }
            : { turnCancelled: true };
        },
        endTurn: ({ turnId, answer, acknowledgeDeliveryId }) => {
          log.push(`end(${turnId},${answer},${acknowledgeDeliveryId})`);
          if (turnId === "t2") {
            throw refusal(Code.NotFound, "TURN_UNKNOWN", "no such turn");
          }
          return {};
        },
      }),
    );
    await runWorker(
      async (turn, agent) => {
        const { prompts } = await agent.takePrompts();
        return [turn.text, ...prompts.map((prompt) => prompt.text)].join("|");
      },
      { agent: fake.client().agent("a") },
    );
    assert.deepEqual(log, [
      "next()",
      "take(d1)",
      "end(t1,one 1\n\ntwo|late,d1b)",
      "next()",
      "take(d2)",
      "end(t2,one 2\n\ntwo,)",
      "next()",
    ]);
  });

  it("needs an agent", async () => {
    await assert.rejects(
      runWorker(() => ""),
      { reason: "NO_AGENT" },
    );
  });

  it("ends with its signal", async () => {
    await using fake = await Fake.start((router) =>
      router.service(AgentService, { nextTurn: () => new Promise(() => {}) }),
    );
    await runWorker(() => "", {
      agent: fake.client().agent("a"),
      signal: AbortSignal.timeout(100),
    });
  });
});
