/** A sub-agent's driver, as a loop around one function. */

import type { Agent } from "./agent.js";
import type { Abortable } from "./connection.js";
import { PinfoldError } from "./errors.js";
import { type ConnectOptions, Pinfold } from "./pinfold.js";
import type { Turn } from "./turns.js";

/**
 * A user cancelled the turn, as `takePrompts` tells: thrown by an {@link Answerer}, it goes on
 * with the next turn.
 */
export class TurnCancelled extends Error {
  override readonly name = "TurnCancelled";
  constructor() {
    super("the turn was cancelled by a user");
  }
}

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

const GONE = new Set(["AGENT_STOPPED", "AGENT_UNKNOWN"]);

async function drive(agent: Agent, answer: Answerer, signal: AbortSignal | undefined) {
  try {
    for (;;) {
      const turn = await agent.nextTurn({ signal });
      if (turn !== undefined) {
        await work(agent, turn, answer);
      }
    }
  } catch (error) {
    if (!signal?.aborted && !GONE.has(reasonOf(error))) {
      throw error;
    }
  }
}

async function work(agent: Agent, turn: Turn, answer: Answerer) {
  try {
    await agent.endTurn(turn.turnId, await answer(turn, agent));
  } catch (error) {
    // TURN_UNKNOWN: cancelled while the answer was made, which has no addressee then.
    if (!(error instanceof TurnCancelled) && reasonOf(error) !== "TURN_UNKNOWN") {
      throw error;
    }
  }
}

function reasonOf(error: unknown): string {
  return error instanceof PinfoldError ? error.reason : "";
}
