/** A sub-agent's driver, as a loop around one function. */

import type { Agent } from "./agent.js";
import type { Abortable } from "./connection.js";
import { PinfoldError } from "./errors.js";
import { type ConnectOptions, Pinfold } from "./pinfold.js";
import type { Turn } from "./turns.js";

/** Takes a turn and gives the agent's answer. */
export type Answerer = (turn: Turn, agent: Agent) => Promise<string> | string;

export interface WorkerOptions extends ConnectOptions, Abortable {
  /** Default: the agent of `PINFOLD_AGENT_ID`, on a connection of its own. */
  agent?: Agent | undefined;
}

/**
 * Takes turns and answers them, until the agent is stopped or `signal` is aborted.
 *
 * The program of a `command` role is this one call: the supervisor gives its process
 * `PINFOLD_ADDRESS`, `PINFOLD_AGENT_ID` and `PINFOLD_TOKEN`. What `answer` throws ends the loop,
 * and the process if nobody catches it; the supervisor then restarts the worker as its role says,
 * and the turn is handed out again.
 */
export async function runWorker(answer: Answerer, options: WorkerOptions = {}): Promise<void> {
  if (options.agent !== undefined) {
    await drive(options.agent, answer, options.signal);
    return;
  }
  const agentId = process.env["PINFOLD_AGENT_ID"];
  if (!agentId) {
    throw new PinfoldError("PINFOLD_AGENT_ID is not set: a worker is started by the supervisor", {
      code: "INVALID_ARGUMENT",
      reason: "NO_AGENT",
    });
  }
  await using pinfold = Pinfold.connect(options);
  await drive(pinfold.agent(agentId), answer, options.signal);
}

async function drive(agent: Agent, answer: Answerer, signal: AbortSignal | undefined) {
  try {
    for (;;) {
      const turn = await agent.nextTurn({ signal });
      if (turn !== undefined) {
        await endTurn(agent, turn, await answer(turn, agent));
      }
    }
  } catch (error) {
    if (!signal?.aborted && !hasReason(error, "AGENT_STOPPED")) {
      throw error;
    }
  }
}

async function endTurn(agent: Agent, turn: Turn, answer: string) {
  try {
    await agent.endTurn(turn.turnId, answer);
  } catch (error) {
    // A user cancelled the turn meanwhile; the answer has no addressee.
    if (!hasReason(error, "TURN_UNKNOWN")) {
      throw error;
    }
  }
}

function hasReason(error: unknown, reason: string): boolean {
  return error instanceof PinfoldError && error.reason === reason;
}
