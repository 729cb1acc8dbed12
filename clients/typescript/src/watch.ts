/** Watching the log: every event once and in order, over any number of connections. */

import type { Abortable, Connection } from "./connection.js";
import type { Event, WatchResponse } from "./gen/pinfold/v1/watch_service_pb.js";
import { duration, present } from "./values.js";

export interface WatchOptions extends Abortable {
  /**
   * 0, the default: a snapshot, closed by a bookmark, then what follows. R: everything since R,
   * inclusive.
   */
  startRevision?: bigint | number | undefined;
  /** Only these agents; default all that the token reaches. */
  agents?: readonly string[] | undefined;
  /** Also the agents below them. */
  descendants?: boolean | undefined;
  /** Exact, or prefixes such as "call.*". */
  names?: readonly string[] | undefined;
  callId?: string | undefined;
  /** End at the end of the log. */
  stopAtEnd?: boolean | undefined;
  /** Internal prompts with their text. */
  showInternal?: boolean | undefined;
  /** Also progress while nothing happens. */
  progressMs?: number | undefined;
}

export async function* watch(
  connection: Connection,
  options: WatchOptions,
): AsyncGenerator<WatchResponse, void, undefined> {
  let resume = BigInt(options.startRevision ?? 0);
  const goOnBehind = (revision: bigint) => {
    if (revision >= resume) {
      resume = revision + 1n;
    }
  };
  const responses = connection.stream((call) => {
    const request = present({
      startRevision: resume,
      filter: {
        agentIds: [...(options.agents ?? [])],
        descendants: options.descendants ?? false,
        names: [...(options.names ?? [])],
        callId: options.callId ?? "",
      },
      progressInterval: duration(options.progressMs),
      stopAtEnd: options.stopAtEnd ?? false,
      showInternal: options.showInternal ?? false,
    });
    return connection.watches.watch(request, call);
  }, options.signal);
  for await (const response of responses) {
    // Until its bookmark a snapshot is not complete, and is asked for again.
    const last = response.events.at(-1);
    if (last !== undefined) {
      goOnBehind(last.revision);
    }
    if (response.bookmark !== undefined) {
      goOnBehind(response.bookmark.revision);
    }
    if (response.progress !== undefined && resume > 0n) {
      goOnBehind(response.progress.revision);
    }
    yield response;
  }
}

export async function* events(
  connection: Connection,
  options: WatchOptions,
): AsyncGenerator<Event, void, undefined> {
  for await (const response of watch(connection, options)) {
    yield* response.events;
  }
}
