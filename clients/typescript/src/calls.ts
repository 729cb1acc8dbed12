import { setTimeout as sleep } from "node:timers/promises";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { type OutputChunk, Placeholder, Result } from "./answers.js";
import type { Abortable } from "./connection.js";
import { PinfoldError } from "./errors.js";
import type { Call } from "./gen/pinfold/v1/call_pb.js";
import {
  type CallLimitsSchema,
  type CancelCallResponse,
  CancelCallResponseSchema,
  LeftoverPolicy,
  type RunShellRequestSchema,
  Stdin,
} from "./gen/pinfold/v1/call_service_pb.js";
import { AgentHandle } from "./handle.js";
import { allCalls, type ListOptions } from "./lists.js";
import { type OutputOptions, readOutput } from "./output.js";
import { Outage } from "./retry.js";
import { type Bytes, duration, newId, present, toBytes, toEnv } from "./values.js";
import { watch } from "./watch.js";

/** A string or bytes: a script for the shell, byte for byte. An array: a program and its arguments. */
export type Command = string | Uint8Array | readonly Bytes[];

export interface RunOptions extends Abortable {
  /** The tool_call_id; one is generated. The same id with the same options is the same call. */
  callId?: string | undefined;
  /** Running time, in the foreground and in the background alike; default no limit. */
  timeoutMs?: number | undefined;
  /** Absolute, or relative to the agent's directory. */
  cwd?: Bytes | undefined;
  /** Added to the agent's environment. */
  env?: Readonly<Record<string, Bytes>> | undefined;
  /** Into the background at once. */
  background?: boolean | undefined;
  /** Overlaps with no other call of the agent. */
  exclusive?: boolean | undefined;
  /** For the standard input, which then ends, unless `stdin` is set. */
  input?: Bytes | undefined;
  /** More input comes by `writeInput`, until `closeInput`. */
  stdin?: boolean | undefined;
  /** A terminal of its own. */
  terminal?: { rows: number; columns: number } | undefined;
  limits?: MessageInitShape<typeof CallLimitsSchema> | undefined;
  /** Between TERM and KILL; default 2 seconds. */
  graceMs?: number | undefined;
  /** End what outlives the command. */
  killLeftovers?: boolean | undefined;
  /** One line for lists. */
  label?: string | undefined;
  /** The shell for a script. */
  shell?: Bytes | undefined;
  /** Until it goes to the background; default 2 seconds. */
  foregroundBudgetMs?: number | undefined;
}

export interface CancelOptions extends Abortable {
  /** Recorded, and shown in the result and in events. */
  reason?: string | undefined;
  /** Between TERM and KILL; default the call's own. */
  graceMs?: number | undefined;
}

const INPUT_PIECE = 256 * 1024;

/** An agent's calls: run, follow, cancel, feed. */
export abstract class Calls extends AgentHandle {
  /**
   * Runs a command; returns its result, or a placeholder when it went to the background.
   *
   * A non-zero exit code, a signal and a timeout are results. INVALID_ARGUMENT means that
   * nothing was started. Aborting ends the RPC, not the command: see {@link Calls.cancel}.
   */
  async run(command: Command, options: RunOptions = {}): Promise<Result | Placeholder> {
    const request = runRequest(this.agentId, command, options);
    const { callId, taskId, answer } = await this.connection.unary(
      (call) => this.connection.calls.runShell(request, call),
      { parks: true, signal: options.signal },
    );
    if (answer.case === "result") {
      return new Result(answer.value);
    }
    return new Placeholder(callId, taskId, answer.case === "placeholder" ? answer.value : "");
  }

  /**
   * The same, but returns as soon as the call is queued and durable.
   *
   * Follow it with `output` and `ended`, or collect it with a wait. It stays a foreground call
   * for its `foregroundBudgetMs`.
   */
  async start(command: Command, options: RunOptions = {}): Promise<Call> {
    const { signal } = options;
    const request = { ...runRequest(this.agentId, command, options), detach: true };
    const { callId, answer } = await this.connection.unary(
      (call) => this.connection.calls.runShell(request, call),
      { signal },
    );
    // Otherwise it is a repeat that came after the end.
    return answer.case === "call" ? answer.value : await this.get(callId, { signal });
  }

  /** Output from an offset on, as it comes. Moves no cursor; any number of readers. */
  output(
    callId: string,
    options: OutputOptions = {},
  ): AsyncGenerator<OutputChunk, void, undefined> {
    return readOutput(this.connection, this.agentId, callId, options);
  }

  /** All bytes there are now. */
  async readOutput(
    callId: string,
    options: Pick<OutputOptions, "stream" | "signal"> = {},
  ): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const chunk of this.output(callId, { ...options, follow: false })) {
      pieces.push(chunk.data);
    }
    return Buffer.concat(pieces);
  }

  /** The call as it stands, by `callId` or task id. Consumes nothing. */
  async get(callId: string, { signal }: Abortable = {}): Promise<Call> {
    const { call } = await this.connection.unary(
      (options) => this.connection.calls.getCall({ agentId: this.agentId, callId }, options),
      { signal },
    );
    if (call === undefined) {
      throw new PinfoldError(`an answer without call ${callId}`, { code: "INTERNAL" });
    }
    return call;
  }

  /** The agent's calls in start order. */
  async list(options: ListOptions = {}): Promise<Call[]> {
    return await allCalls(this.connection, this.agentId, options);
  }

  /** Awaits the end of a call without consuming its result. */
  async ended(callId: string, { signal }: Abortable = {}): Promise<Result> {
    let call = await this.get(callId, { signal });
    if (call.result === undefined) {
      const options = { agents: [this.agentId], callId: call.callId, signal };
      for await (const response of watch(this.connection, options)) {
        if (response.events.some(({ body }) => body.case === "callEnded")) {
          break;
        }
        // It may have ended before the snapshot.
        if (response.bookmark !== undefined) {
          call = await this.get(callId, { signal });
          if (call.result !== undefined) {
            break;
          }
        }
      }
      if (call.result === undefined) {
        call = await this.get(callId, { signal });
      }
    }
    if (call.result === undefined) {
      throw new PinfoldError(`call ${callId} ended without a result`, { code: "INTERNAL" });
    }
    return new Result(call.result);
  }

  /**
   * Asks for the end of one call and returns at once; `ended` awaits the end.
   *
   * FAILED_PRECONDITION with CALL_ALREADY_CANCELED, CALL_ALREADY_DONE or CALL_NOT_CANCELLABLE;
   * NOT_FOUND.
   */
  async cancel(callId: string, options: CancelOptions = {}): Promise<CancelCallResponse> {
    const outage = new Outage(this.connection.patienceMs);
    const request = present({
      agentId: this.agentId,
      callId,
      reason: options.reason,
      grace: duration(options.graceMs),
    });
    try {
      return await this.connection.unary(
        (call) => this.connection.calls.cancelCall(request, call),
        { outage, signal: options.signal },
      );
    } catch (error) {
      // The reply to the first attempt was lost.
      if (
        outage.repeated &&
        error instanceof PinfoldError &&
        error.reason === "CALL_ALREADY_CANCELED"
      ) {
        return create(CancelCallResponseSchema, { text: "Tool cancellation requested" });
      }
      throw error;
    }
  }

  /**
   * Writes all of `data` to the standard input, as fast as the program reads it.
   *
   * Not repeated after a lost connection: then nobody knows how much was taken.
   */
  async writeInput(callId: string, data: Bytes, { signal }: Abortable = {}): Promise<void> {
    let rest = toBytes(data);
    let delayMs = 0;
    while (rest.length > 0) {
      const request = { agentId: this.agentId, callId, data: rest.subarray(0, INPUT_PIECE) };
      const { accepted } = await this.connection.unary(
        (call) => this.connection.calls.writeInput(request, call),
        { repeat: false, signal },
      );
      rest = rest.subarray(Number(accepted));
      delayMs = accepted > 0n ? 0 : Math.min(delayMs * 2 + 5, 250);
      if (delayMs > 0) {
        await sleep(delayMs);
      }
    }
  }

  /** Ends the standard input. */
  async closeInput(callId: string, { signal }: Abortable = {}): Promise<void> {
    await this.connection.unary(
      (call) => this.connection.calls.closeInput({ agentId: this.agentId, callId }, call),
      { signal },
    );
  }

  /** Sets the size of the call's terminal. */
  async resize(
    callId: string,
    size: { rows: number; columns: number },
    { signal }: Abortable = {},
  ): Promise<void> {
    await this.connection.unary(
      (call) => this.connection.calls.resizeTerminal({ agentId: this.agentId, callId, size }, call),
      { signal },
    );
  }
}

function runRequest(
  agentId: string,
  command: Command,
  options: RunOptions,
): MessageInitShape<typeof RunShellRequestSchema> {
  const program =
    typeof command === "string" || command instanceof Uint8Array
      ? ({ case: "script", value: toBytes(command) } as const)
      : ({ case: "argv", value: { args: command.map(toBytes) } } as const);
  return present({
    agentId,
    callId: options.callId || newId("call"),
    program,
    timeout: duration(options.timeoutMs),
    cwd: toBytes(options.cwd),
    env: toEnv(options.env),
    background: options.background,
    exclusive: options.exclusive,
    stdin: options.stdin ? Stdin.PIPE : undefined,
    input: toBytes(options.input),
    terminal: options.terminal,
    limits: options.limits,
    grace: duration(options.graceMs),
    leftovers: options.killLeftovers ? LeftoverPolicy.KILL : undefined,
    label: options.label,
    shell: toBytes(options.shell),
    foregroundBudget: duration(options.foregroundBudgetMs),
  });
}
