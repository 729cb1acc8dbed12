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
    await new Worker(options.agent, answer).serve(options.signal);
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
  const worker = new Worker(pinfold.agent(agentId), answer);
  const terminated = () => {
    // By the signal itself: work that does not want to end is not waited for.
    worker.handOver().finally(() => process.kill(process.pid, "SIGTERM"));
  };
  process.once("SIGTERM", terminated);
  try {
    await worker.serve(options.signal);
  } finally {
    process.off("SIGTERM", terminated);
  }
}

const GONE = new Set(["AGENT_STOPPED", "AGENT_UNKNOWN"]);

/** Drives one agent. */
class Worker {
  #turn: Turn | undefined;

  constructor(
    readonly agent: Agent,
    readonly answer: Answerer,
  ) {}

  async serve(signal: AbortSignal | undefined): Promise<void> {
    try {
      for (;;) {
        this.#turn = await this.agent.nextTurn({ signal });
        if (this.#turn !== undefined) {
          await this.#work(this.#turn);
          this.#turn = undefined;
        }
      }
    } catch (error) {
      if (signal?.aborted) {
        return;
      }
      if (!GONE.has(reasonOf(error))) {
        throw error;
      }
      // A refusal may come before the signal does.
      await this.handOver();
    }
  }

  /** The agent is being ended: says how far its answer has come, if it has. */
  async handOver(): Promise<void> {
    const turn = this.#turn;
    if (turn?.draft) {
      await this.agent.endTurn(turn.turnId, turn.draft, { draft: true }).catch(() => {});
    }
  }

  async #work(turn: Turn): Promise<void> {
    try {
      await this.agent.endTurn(turn.turnId, await this.answer(turn, this.agent));
    } catch (error) {
      // TURN_UNKNOWN: cancelled while the answer was made, which has no addressee then.
      if (!(error instanceof TurnCancelled) && reasonOf(error) !== "TURN_UNKNOWN") {
        throw error;
      }
    }
  }
}

function reasonOf(error: unknown): string {
  return error instanceof PinfoldError ? error.reason : "";
}
