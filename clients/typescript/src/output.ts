/** The output of a call by offset, so that a lost connection loses and repeats nothing. */

import { OutputChunk } from "./answers.js";
import type { Abortable, Connection } from "./connection.js";
import { PinfoldError } from "./errors.js";
import { OutputStream } from "./gen/pinfold/v1/call_pb.js";

export interface OutputOptions extends Abortable {
  /** Where to begin; default 0. */
  offset?: number | undefined;
  /** Stay until the streams are closed; default true. */
  follow?: boolean | undefined;
  /** With `follow`: only until the call has ended, also if leftovers hold its streams; default true. */
  untilEnd?: boolean | undefined;
  /** Default: both, in the order of arrival. */
  stream?: "out" | "err" | undefined;
  /** Stop after this many bytes; 0, the default: no limit. */
  limit?: number | undefined;
}

const STREAMS = { out: OutputStream.OUT, err: OutputStream.ERR };

export async function* readOutput(
  connection: Connection,
  agentId: string,
  callId: string,
  options: OutputOptions,
): AsyncGenerator<OutputChunk, void, undefined> {
  const { follow = true, untilEnd = true, limit = 0, stream, signal } = options;
  let offset = options.offset ?? 0;
  if (!Number.isSafeInteger(offset)) {
    throw new PinfoldError(`not an offset: ${offset}`, {
      code: "INVALID_ARGUMENT",
      reason: "INVALID_ARGUMENT",
    });
  }
  let read = 0;
  const responses = connection.stream((call) => {
    if (limit > 0 && read >= limit) {
      return undefined;
    }
    const request = {
      agentId,
      callId,
      offset: BigInt(offset),
      follow,
      untilEnd,
      stream: stream === undefined ? OutputStream.UNSPECIFIED : STREAMS[stream],
      limit: BigInt(limit === 0 ? 0 : limit - read),
    };
    return connection.calls.readOutput(request, call);
  }, signal);
  for await (const response of responses) {
    if (response.data.length > 0 || response.dropped > 0n) {
      const chunk = new OutputChunk(response);
      offset = chunk.end;
      read += chunk.data.length;
      yield chunk;
    }
  }
}
