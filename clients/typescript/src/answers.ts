/** What an agent's methods return: thin views of the messages, each with the message itself. */

import { timestampDate } from "@bufbuild/protobuf/wkt";

import {
  type CallResult,
  CallState,
  type EndCause,
  type KillReceipt,
  OutputStream,
} from "./gen/pinfold/v1/call_pb.js";
import {
  type ReadOutputResponse,
  WaitOutcome,
  type WaitResponse,
} from "./gen/pinfold/v1/call_service_pb.js";
import { toMs } from "./values.js";

/** What a call ended with. A program's failure is a result, never an error. */
export class Result {
  readonly kind = "result";

  constructor(readonly message: CallResult) {}

  get callId(): string {
    return this.message.callId;
  }

  get taskId(): string {
    return this.message.taskId;
  }

  get state(): CallState {
    return this.message.state;
  }

  /** Why it ended: a program that answers a cancel with exit code 0 was cancelled. */
  get cause(): EndCause {
    return this.message.cause;
  }

  /** `undefined` when it ended by a signal, or isn't known. */
  get exitCode(): number | undefined {
    return this.message.process?.exitCode;
  }

  get signal(): number | undefined {
    return this.message.process?.signal;
  }

  /** It ended by itself, with exit code 0 (an agent: with an answer). */
  get ok(): boolean {
    return (
      this.state === CallState.SUCCEEDED && (this.exitCode ?? 0) === 0 && this.signal === undefined
    );
  }

  /** For a call that failed, was lost or was cancelled; else empty. */
  get error(): string {
    return this.message.error;
  }

  /** Running time. */
  get durationMs(): number {
    return toMs(this.message.duration);
  }

  /** What a model reads. */
  get text(): string {
    return this.message.text;
  }

  /** The final answer of a sub-agent. */
  get answer(): string {
    return this.message.answer;
  }

  /** What ending it took; `undefined` when it ended by itself. */
  get receipt(): KillReceipt | undefined {
    return this.message.receipt;
  }
}

/** The call is in the background; collect its result with a wait or the task tools. */
export class Placeholder {
  readonly kind = "placeholder";

  constructor(
    readonly callId: string,
    readonly taskId: string,
    /** What a model reads. */
    readonly text: string,
  ) {}
}

/** How a wait ended. Running out of time and an interruption are answers too. */
export class WaitAnswer {
  constructor(readonly message: WaitResponse) {}

  get outcome(): WaitOutcome {
    return this.message.outcome;
  }

  /** Consumed by this wait; in request order for a set. */
  get results(): Result[] {
    return this.message.results.map((result) => new Result(result));
  }

  /** The first of them. */
  get result(): Result | undefined {
    return this.results[0];
  }

  get timedOut(): boolean {
    return this.outcome === WaitOutcome.TIMED_OUT;
  }

  get interrupted(): boolean {
    return this.outcome === WaitOutcome.INTERRUPTED;
  }

  get inputAvailable(): boolean {
    return this.outcome === WaitOutcome.INPUT_AVAILABLE;
  }

  /** What a model reads. */
  get text(): string {
    return this.message.text;
  }
}

/**
 * Consecutive bytes of one stream, from `offset` on. `dropped` bytes from there on aren't kept;
 * then there is no data.
 */
export class OutputChunk {
  readonly stream: "out" | "err";
  readonly offset: number;
  readonly data: Uint8Array;
  readonly dropped: number;
  readonly time: Date | undefined;

  constructor(message: ReadOutputResponse) {
    this.stream = message.stream === OutputStream.ERR ? "err" : "out";
    this.offset = Number(message.offset);
    this.data = message.data;
    this.dropped = Number(message.dropped);
    this.time = message.time && timestampDate(message.time);
  }

  /** The offset after it. */
  get end(): number {
    return this.offset + this.data.length + this.dropped;
  }
}
