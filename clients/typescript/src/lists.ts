/** Lists, page by page. */

import type { Abortable, Connection } from "./connection.js";
import type { Agent } from "./gen/pinfold/v1/agent_pb.js";
import type { Call } from "./gen/pinfold/v1/call_pb.js";
import type { Task } from "./gen/pinfold/v1/task_service_pb.js";

export interface ListOptions extends Abortable {
  /** Only what has not ended. */
  liveOnly?: boolean | undefined;
}

const pageSize = 1000;

async function allPages<R extends { nextPageToken: string }, T>(
  fetch: (pageToken: string) => Promise<R>,
  items: (page: R) => readonly T[],
): Promise<T[]> {
  const all: T[] = [];
  let pageToken = "";
  do {
    const page = await fetch(pageToken);
    all.push(...items(page));
    pageToken = page.nextPageToken;
  } while (pageToken);
  return all;
}

export function allAgents(
  connection: Connection,
  parentId: string,
  { liveOnly = false, signal }: ListOptions,
): Promise<Agent[]> {
  return allPages(
    (pageToken) =>
      connection.unary(
        (call) => connection.agents.listAgents({ parentId, liveOnly, pageSize, pageToken }, call),
        { signal },
      ),
    (page) => page.agents,
  );
}

export function allCalls(
  connection: Connection,
  agentId: string,
  { liveOnly = false, signal }: ListOptions,
): Promise<Call[]> {
  return allPages(
    (pageToken) =>
      connection.unary(
        (call) => connection.calls.listCalls({ agentId, liveOnly, pageSize, pageToken }, call),
        { signal },
      ),
    (page) => page.calls,
  );
}

export function allTasks(
  connection: Connection,
  agentId: string,
  { liveOnly = false, signal }: ListOptions,
): Promise<Task[]> {
  return allPages(
    (pageToken) =>
      connection.unary(
        (call) => connection.tasks.listTasks({ agentId, liveOnly, pageSize, pageToken }, call),
        { signal },
      ),
    (page) => page.tasks,
  );
}
