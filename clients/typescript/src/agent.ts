import { Turns } from "./turns.js";

/**
 * A handle of an agent: cheap, made by `Pinfold.openAgent` or `Pinfold.agent`.
 *
 * Its parts: {@link Calls} (run, output, cancel), {@link Waits}, {@link Tasks} (task tools, and
 * tools as a model calls them), {@link Turns} (prompts, sub-agents, messages). Every failed RPC
 * is a {@link PinfoldError}.
 */
export class Agent extends Turns {}
