import type { Arguments } from "./arguments.js";
import { agentOperations } from "./operations-agents.js";
import { callOperations } from "./operations-calls.js";
import { toolOperations } from "./operations-tools.js";
import { watchOperations } from "./operations-watch.js";
import type { Answer } from "./values.js";

/** Does one thing through the client. */
export type Operation = (args: Arguments) => Promise<Answer> | Answer;

/** All that a scenario can name; README.md has the same table. */
export const operations: Readonly<Record<string, Operation>> = {
  ...agentOperations,
  ...callOperations,
  ...toolOperations,
  ...watchOperations,
};

/** Recorded only where a step has `record`, or when they fail. */
export const silent: ReadonlySet<string> = new Set([
  "attach_agent",
  "connect",
  "sleep",
  "until_event",
]);
