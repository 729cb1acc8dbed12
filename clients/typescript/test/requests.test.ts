import assert from "node:assert/strict";
import { describe, it } from "node:test";

import type { MessageShape } from "@bufbuild/protobuf";

import { Result } from "../src/index.js";
import {
  AgentService,
  CallService,
  CallState,
  LeftoverPolicy,
  type RunShellRequestSchema,
  Stdin,
  Surface,
} from "../src/v1.js";
import { Fake } from "./fake.js";

describe("requests", () => {
  it("carry scripts, arguments and paths byte for byte", async () => {
    const seen: MessageShape<typeof RunShellRequestSchema>[] = [];
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        runShell: (request) => {
          seen.push(request);
          return {
            callId: request.callId,
            answer: {
              case: "result",
              value: {
                callId: request.callId,
                state: CallState.SUCCEEDED,
                process: { exitCode: 7 },
                duration: { seconds: 1n, nanos: 500_000_000 },
                text: "status: 7\n\n",
              },
            },
          };
        },
      }),
    );
    const agent = fake.client().agent("a");
    const result = await agent.run("echo ü");
    assert.ok(result instanceof Result);
    assert.equal(result.exitCode, 7);
    assert.equal(result.signal, undefined);
    assert.equal(result.ok, false);
    assert.equal(result.durationMs, 1500);
    assert.equal(result.text, "status: 7\n\n");
    await agent.run(new Uint8Array([0xff, 0x0a]), {
      timeoutMs: 0,
      env: { ODD: new Uint8Array([0xfe]), PLAIN: "x" },
      graceMs: 1.5,
    });
    await agent.run(["printf", new Uint8Array([0xff])], {
      callId: "mine",
      cwd: "/tmp",
      stdin: true,
      input: "hello",
      terminal: { rows: 3, columns: 4 },
      killLeftovers: true,
      limits: { outputBytes: 10n },
    });
    const [first, second, third] = seen;
    assert.ok(first && second && third);
    assert.equal(first.agentId, "a");
    assert.deepEqual(first.program.value, new TextEncoder().encode("echo ü"));
    assert.equal(first.timeout, undefined);
    assert.deepEqual(second.program.value, new Uint8Array([0xff, 0x0a]));
    assert.equal(second.timeout?.seconds, 0n);
    assert.equal(second.grace?.nanos, 1_500_000);
    assert.deepEqual(second.env["ODD"], new Uint8Array([0xfe]));
    assert.equal(third.callId, "mine");
    assert.equal(third.program.case, "argv");
    assert.equal(third.stdin, Stdin.PIPE);
    assert.equal(third.leftovers, LeftoverPolicy.KILL);
    assert.equal(third.limits?.outputBytes, 10n);
    assert.notEqual(first.callId, second.callId);
  });

  it("carry the token", async () => {
    const seen: (string | null)[] = [];
    await using fake = await Fake.start((router) =>
      router.service(AgentService, {
        openAgent: ({ agentId, surface }, { requestHeader }) => {
          seen.push(requestHeader.get("authorization"));
          assert.equal(surface, Surface.TASKS);
          return { agent: { agentId }, token: "its own" };
        },
      }),
    );
    const agent = await fake.client({ token: "s3cret" }).openAgent("x", { surface: "tasks" });
    assert.equal(agent.agentId, "x");
    assert.equal(agent.token, "its own");
    assert.deepEqual(seen, ["Bearer s3cret"]);
  });

  it("page through lists", async () => {
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        listCalls: ({ pageToken }) =>
          pageToken === ""
            ? { calls: [{ callId: "1" }, { callId: "2" }], nextPageToken: "more" }
            : { calls: [{ callId: "3" }] },
      }),
    );
    const calls = await fake.client().listCalls();
    assert.deepEqual(
      calls.map((call) => call.callId),
      ["1", "2", "3"],
    );
  });

  it("feed input as fast as it is taken", async () => {
    const taken: number[] = [];
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        writeInput: ({ data }) => {
          const accepted = taken.length === 1 ? 0 : Math.min(data.length, 100_000);
          taken.push(accepted);
          return { accepted: BigInt(accepted) };
        },
      }),
    );
    await fake.client().agent("a").writeInput("c", "x".repeat(300_000));
    assert.deepEqual(taken, [100_000, 0, 100_000, 100_000]);
  });
});
