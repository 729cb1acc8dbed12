import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { type Agent, PinfoldError, type Placeholder, type Result } from "../src/index.js";
import { CallState, EndCause, ToolAnswerKind } from "../src/v1.js";
import { noSupervisor, Supervisor } from "./supervisor.js";

const SLEEP = { timeoutMs: 20_000 };

function result(answer: Result | Placeholder): Result {
  assert.equal(answer.kind, "result");
  return answer as Result;
}

describe("with a supervisor", { skip: noSupervisor }, () => {
  let supervisor: Supervisor;
  let agent: Agent;
  before(async () => {
    supervisor = await Supervisor.start();
    agent = await supervisor.client().openAgent("me");
  });
  after(async () => {
    await supervisor[Symbol.asyncDispose]();
  });

  it("info tells version and limits", async () => {
    const info = await supervisor.client().info();
    assert.match(info.version, /^\d/);
    assert.equal(info.limits?.foregroundBudget?.seconds, 2n);
  });

  it("a program's failure is a result", async () => {
    const failed = result(await agent.run("echo out; echo err >&2; exit 7"));
    assert.equal(failed.exitCode, 7);
    assert.equal(failed.ok, false);
    assert.match(failed.text, /status: 7\n/);
    assert.match(failed.text, /out out/);
    const killed = result(await agent.run(["sh", "-c", "kill -9 $$"]));
    assert.equal(killed.signal, 9);
    assert.equal(killed.exitCode, undefined);
    assert.equal(killed.cause, EndCause.SIGNAL);
    const late = result(await agent.run("sleep 10", { timeoutMs: 300 }));
    assert.equal(late.state, CallState.TIMED_OUT);
    assert.ok(result(await agent.run("true")).ok);
  });

  it("bytes stay what they are", async () => {
    const odd = new Uint8Array([0xff, 0xfe, 0x0a]);
    const { callId } = result(
      await agent.run("cat; printf '%s' \"$ODD\"", { input: odd, env: { ODD: odd.slice(0, 1) } }),
    );
    assert.deepEqual(await agent.readOutput(callId), Buffer.from([0xff, 0xfe, 0x0a, 0xff]));
  });

  it("goes to the background, and is waited for once", async () => {
    const answer = await agent.run("sleep 0.3; echo late", {
      callId: "late",
      foregroundBudgetMs: 50,
    });
    assert.equal(answer.kind, "placeholder");
    assert.match((answer as Placeholder).text, /Tool call `late` is running in the background/);
    const waited = await agent.waitExact("late", { ...SLEEP, waitId: "w1" });
    assert.equal(waited.result?.exitCode, 0);
    assert.deepEqual(await agent.waitExact("late", { ...SLEEP, waitId: "w1" }), waited);
    await assert.rejects(agent.waitExact("late"), {
      code: "FAILED_PRECONDITION",
      reason: "RESULT_CONSUMED",
    });
  });

  it("all forms of wait", async () => {
    const background = { background: true };
    const other = await supervisor.client().openAgent();
    await other.run("sleep 0.2", { callId: "a", ...background });
    await other.run("sleep 0.1", { callId: "b", ...background });
    await other.run("sleep 0.4", { callId: "c", ...background });
    const all = await other.waitAll(["a", "b"], SLEEP);
    assert.deepEqual(
      all.results.map(({ callId }) => callId),
      ["a", "b"],
    );
    await other.run("sleep 30", { callId: "d", ...background });
    assert.equal((await other.waitAny(["d", "c"], SLEEP)).result?.callId, "c");
    assert.ok((await other.waitAnyBackground({ timeoutMs: 50 })).timedOut);
    const waiting = other.waitForInput(SLEEP);
    await other.sendPrompt("hello");
    assert.ok((await waiting).inputAvailable);
    const { endedCalls } = await other.stop({ graceMs: 0 });
    assert.equal(endedCalls, 1);
  });

  it("a cancel leaves nothing, and says so", async () => {
    const { callId } = await agent.start("trap '' TERM; echo ready; sleep 100 & sleep 100");
    for await (const _ of agent.output(callId, { limit: 1 })) {
      // The trap is set.
    }
    await agent.cancel(callId, { reason: "enough", graceMs: 200 });
    await assert.rejects(agent.cancel(callId), { reason: "CALL_ALREADY_CANCELED" });
    const ended = await agent.ended(callId);
    assert.equal(ended.state, CallState.CANCELLED);
    assert.equal(ended.message.cancelReason, "enough");
    assert.match(ended.receipt?.endedBy ?? "", /^(kill|sweep)$/);
    assert.deepEqual(ended.receipt?.survivors, []);
  });

  it("output is followed, and read by offset", async () => {
    const { callId } = await agent.start("for i in 1 2 3; do echo $i; sleep 0.1; done; echo e >&2");
    let text = "";
    let end = 0;
    for await (const chunk of agent.output(callId)) {
      assert.equal(chunk.offset, end);
      end = chunk.end;
      text += `${chunk.stream}:${Buffer.from(chunk.data)}`;
    }
    assert.equal(text, "out:1\nout:2\nout:3\nerr:e\n");
    const tail: Uint8Array[] = [];
    for await (const chunk of agent.output(callId, { offset: 3, limit: 2 })) {
      tail.push(chunk.data);
    }
    assert.equal(Buffer.concat(tail).toString(), "\n3");
    assert.equal(Buffer.from(await agent.readOutput(callId, { stream: "err" })).toString(), "e\n");
  });

  it("input is fed to a terminal", async () => {
    const { callId } = await agent.start("read line; stty size; echo got $line", {
      terminal: { rows: 20, columns: 90 },
    });
    await agent.resize(callId, { rows: 30, columns: 100 });
    await agent.writeInput(callId, "hello\n");
    const ended = await agent.ended(callId);
    assert.match(ended.text, /30 100/);
    assert.match(ended.text, /got hello/);
  });

  it("much input and much output", async () => {
    const { callId } = await agent.start("wc -c; seq 1 100000", { stdin: true });
    await agent.writeInput(callId, "x".repeat(3_000_000));
    await agent.closeInput(callId);
    await agent.ended(callId);
    const output = Buffer.from(await agent.readOutput(callId)).toString();
    assert.equal(output.length, "3000000\n".length + 588_895);
  });

  it("tools, as a model calls them", async () => {
    const { tools, guidance } = await agent.listTools();
    assert.ok(tools.some(({ name }) => name === "shell"));
    assert.ok(guidance.length > 0);
    const answer = await agent.callTool("shell", { command: "echo hi" });
    assert.equal(answer.kind, ToolAnswerKind.RESULT);
    assert.equal(answer.facts.case, "result");
    const wrong = await agent.callTool("shell", { command: 3 });
    assert.equal(wrong.kind, ToolAnswerKind.ERROR);
  });

  it("tasks", async () => {
    const owner = await supervisor.client().openAgent("", { surface: "tasks" });
    const { taskId } = (await owner.run("echo one; sleep 60", {
      background: true,
    })) as Placeholder;
    assert.equal(taskId, "shell-1");
    await owner.taskKill(taskId, { reason: "done with it" });
    const read = await owner.taskOutput(taskId, { wait: true, timeoutMs: 10_000 });
    assert.match(read.text, /\[status: killed/);
    assert.equal((await owner.taskList())[0]?.taskId, taskId);
  });

  it("errors carry their reason", async () => {
    const failure = await agent.get("nope").catch((error) => error);
    assert.ok(failure instanceof PinfoldError);
    assert.equal(failure.code, "NOT_FOUND");
    assert.equal(failure.reason, "CALL_UNKNOWN");
    await assert.rejects(agent.run("true", { foregroundBudgetMs: -1 }), {
      code: "INVALID_ARGUMENT",
    });
    await assert.rejects(supervisor.client().openAgent("me", { label: "other" }), {
      code: "ALREADY_EXISTS",
      reason: "AGENT_ID_REUSED",
    });
  });

  it("an aborted wait consumes nothing", async () => {
    const { callId } = await agent.run("sleep 0.5", { background: true });
    const reason = new Error("changed my mind");
    const abort = new AbortController();
    setTimeout(() => abort.abort(reason), 100);
    await assert.rejects(agent.waitExact(callId, { signal: abort.signal }), reason);
    assert.equal((await agent.waitExact(callId, SLEEP)).result?.callId, callId);
  });

  it("many waits over one stream", async () => {
    const many = 200;
    const owner = await supervisor.client().openAgent();
    const { agentId } = owner;
    const { callId } = await owner.run("sleep 0.3", { background: true });
    let open = true;
    async function* requests() {
      const exact = (waitId: string, callId: string) =>
        ({ agentId, waitId, form: { case: "exact", value: { callId } } }) as const;
      yield { waits: [exact("one", callId)] };
      yield { waits: Array.from({ length: many }, (_, i) => exact(`w${i}`, `none-${i}`)) };
      while (open) {
        await sleep(10);
      }
    }
    const seen = new Map<string, string>();
    for await (const { answers } of supervisor.client().connection.calls.waitStream(requests())) {
      for (const { waitId, answer } of answers) {
        seen.set(waitId, answer.case === "failure" ? answer.value.reason : (answer.case ?? ""));
      }
      if (seen.size === many + 1) {
        open = false;
      }
    }
    assert.equal(seen.get("one"), "response");
    assert.equal(seen.get("w7"), "CALL_UNKNOWN");
  });

  it("a thousand parked waits over one connection", async () => {
    const client = supervisor.client();
    const abort = new AbortController();
    const agents = await Promise.all(Array.from({ length: 1000 }, () => client.openAgent()));
    const waits = agents.map((each) => each.waitForInput({ signal: abort.signal }));
    const outcomes = Promise.allSettled(waits);
    while ((await client.info()).parkedWaits < 1000) {
      await sleep(50);
    }
    abort.abort();
    assert.ok((await outcomes).every(({ status }) => status === "rejected"));
    while ((await client.info()).parkedWaits > 0) {
      await sleep(50);
    }
  });
});
