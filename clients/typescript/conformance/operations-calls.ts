import type { Command, OutputChunk, RunOptions, WaitAnswer, WaitOptions } from "../src/index.js";
import type { Arguments } from "./arguments.js";
import type { Operation } from "./operations.js";

function command(a: Arguments): Command {
  return a.has("argv") ? a.list("argv") : (a.bytes("script") ?? "");
}

function runOptions(a: Arguments): RunOptions {
  return {
    callId: a.text("call"),
    label: a.text("label"),
    input: a.bytes("input"),
    cwd: a.bytes("cwd"),
    shell: a.text("shell"),
    env: a.table("env"),
    timeoutMs: a.ms("timeout"),
    graceMs: a.ms("grace"),
    foregroundBudgetMs: a.ms("foreground_budget"),
    limits: a.has("output_bytes") ? { outputBytes: BigInt(a.number("output_bytes")) } : undefined,
    terminal: a.has("rows") ? { rows: a.number("rows"), columns: a.number("columns") } : undefined,
    background: a.flag("background"),
    exclusive: a.flag("exclusive"),
    stdin: a.flag("stdin"),
    killLeftovers: a.flag("kill_leftovers"),
    signal: a.signal,
  };
}

function waitOptions(a: Arguments): WaitOptions {
  return { waitId: a.text("wait_id"), timeoutMs: a.ms("timeout"), signal: a.signal };
}

const waited = async (answer: Promise<WaitAnswer>) => (await answer).message;

function streamOf(a: Arguments): "out" | "err" | undefined {
  const name = a.text("stream");
  return name === "out" || name === "err" ? name : undefined;
}

/** Chunks that follow each other are joined: how many there are is open. */
interface Joined {
  stream: string;
  offset: number;
  end: number;
  dropped: number;
  data: Uint8Array[];
}

function join(joined: Joined[], chunk: OutputChunk): void {
  const last = joined.at(-1);
  const stream = chunk.dropped > 0 ? "gap" : chunk.stream;
  if (last?.stream === stream && last.end === chunk.offset) {
    last.data.push(chunk.data);
    last.dropped += chunk.dropped;
    last.end = chunk.end;
  } else {
    const { offset, end, dropped, data } = chunk;
    joined.push({ stream, offset, end, dropped, data: [data] });
  }
}

export const callOperations: Record<string, Operation> = {
  async run_shell(a) {
    const answer = await a.agent().run(command(a), runOptions(a));
    const { callId, taskId } = answer;
    return answer.kind === "result"
      ? { call_id: callId, task_id: taskId, result: answer.message }
      : { call_id: callId, task_id: taskId, placeholder: answer.text };
  },

  start_shell: (a) => a.agent().start(command(a), runOptions(a)),
  get_call: (a) => a.agent().get(a.text("call"), { signal: a.signal }),

  async list_calls(a) {
    const calls = await a.agent().list({ liveOnly: a.flag("live_only"), signal: a.signal });
    return { calls };
  },

  async ended(a) {
    return (await a.agent().ended(a.text("call"), { signal: a.signal })).message;
  },

  cancel: (a) =>
    a.agent().cancel(a.text("call"), {
      reason: a.text("reason"),
      graceMs: a.ms("grace"),
      signal: a.signal,
    }),

  async write_input(a) {
    await a.agent().writeInput(a.text("call"), a.bytes("data") ?? "", { signal: a.signal });
    return undefined;
  },

  async close_input(a) {
    await a.agent().closeInput(a.text("call"), { signal: a.signal });
    return undefined;
  },

  async resize(a) {
    const size = { rows: a.number("rows"), columns: a.number("columns") };
    await a.agent().resize(a.text("call"), size, { signal: a.signal });
    return undefined;
  },

  async read_output(a) {
    const joined: Joined[] = [];
    const chunks = a.agent().output(a.text("call"), {
      offset: a.number("offset"),
      limit: a.number("limit"),
      stream: streamOf(a),
      follow: !a.has("follow") || a.flag("follow"),
      untilEnd: !a.has("until_end") || a.flag("until_end"),
      signal: a.signal,
    });
    for await (const chunk of chunks) {
      join(joined, chunk);
    }
    return {
      chunks: joined.map(({ stream, offset, dropped, data }) => ({
        stream,
        offset,
        dropped,
        base64: Buffer.concat(data).toString("base64"),
      })),
    };
  },

  wait_exact: (a) => waited(a.agent().waitExact(a.text("call"), waitOptions(a))),
  wait_all: (a) => waited(a.agent().waitAll(a.texts("calls"), waitOptions(a))),
  wait_any: (a) => waited(a.agent().waitAny(a.texts("calls"), waitOptions(a))),
  wait_bare: (a) => waited(a.agent().waitAnyBackground(waitOptions(a))),
  wait_input: (a) => waited(a.agent().waitForInput(waitOptions(a))),
};
