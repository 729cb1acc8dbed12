import type { Connection } from "./connection.js";

/** What all parts of an agent's handle share. */
export abstract class AgentHandle {
  /** The last delivery of prompts: the next step of the driver acknowledges it. */
  protected deliveryId = "";

  /** @internal */
  constructor(
    /** @internal */
    readonly connection: Connection,
    readonly agentId: string,
    /** The agent's own, when the supervisor made one with it (see `Pinfold.openAgent`). */
    readonly token = "",
  ) {}
}
