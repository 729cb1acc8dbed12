import { setTimeout as sleep } from "node:timers/promises";

import type { WatchOptions } from "../src/index.js";
import type { Agent, Call, Event } from "../src/v1.js";
import type { Arguments } from "./arguments.js";
import type { Operation } from "./operations.js";
import { find, objectOf, show, type Table } from "./values.js";

function watchOptions(a: Arguments): WatchOptions {
  return {
    startRevision: a.number("start"),
    agents: a.texts("agents").map((name) => a.agent(name).agentId),
    names: a.texts("names"),
    callId: a.text("call"),
    descendants: a.flag("descendants"),
    stopAtEnd: a.flag("stop_at_end"),
    showInternal: a.flag("show_internal"),
    signal: a.signal,
  };
}

function matches(event: Event, where: Table): boolean {
  const object = objectOf(event);
  return Object.entries(where).every(([path, value]) => show(find(object, path)) === show(value));
}

export const watchOperations: Record<string, Operation> = {
  /**
   * Collects a snapshot if it starts at 0, and events until `count` of them are there or the
   * log's end is reached.
   */
  async watch_from(a) {
    const wanted = a.number("count");
    const agents: Agent[] = [];
    const calls: Call[] = [];
    const events: Event[] = [];
    let bookmark: bigint | undefined;
    for await (const response of a.client().watch(watchOptions(a))) {
      agents.push(...(response.snapshot?.agents ?? []));
      calls.push(...(response.snapshot?.calls ?? []));
      bookmark = response.bookmark?.revision ?? bookmark;
      events.push(...response.events);
      if (wanted > 0 && events.length >= wanted) {
        events.length = wanted;
        break;
      }
    }
    const last = events.at(-1)?.revision ?? bookmark;
    const next = last === undefined ? undefined : last + 1n;
    return { agents, calls, events, bookmark, next };
  },

  /** Waits until an event has been seen `count` times since the scenario began. */
  async until_event(a) {
    const where = (a.values["where"] ?? {}) as Table;
    let left = Math.max(a.number("count"), 1);
    const events = a.client().events({
      startRevision: a.run.begin,
      agents: [a.agent().agentId],
      names: [a.text("name")],
      callId: a.text("call"),
      signal: a.signal,
    });
    for await (const event of events) {
      if (matches(event, where)) {
        left -= 1;
        if (left === 0) {
          return event;
        }
      }
    }
    throw new Error("the log ended");
  },

  async sleep(a) {
    await sleep(a.number("seconds") * 1000);
    return undefined;
  },
};
