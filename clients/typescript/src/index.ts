/**
 * Client of Pinfold, the supervisor for the processes of LLM agents.
 *
 * Times are in milliseconds (`…Ms`). The generated messages are in `@pinfold/client/v1`.
 *
 * @packageDocumentation
 */

export { Agent } from "./agent.js";
export { OutputChunk, Placeholder, Result, WaitAnswer } from "./answers.js";
export type { CancelOptions, Command, RunOptions } from "./calls.js";
export type { Tls } from "./channel.js";
export type { Abortable, Connection } from "./connection.js";
export { type ErrorCode, type ErrorFacts, PinfoldError } from "./errors.js";
export type { ListOptions } from "./lists.js";
export type { OutputOptions } from "./output.js";
export { type ConnectOptions, type OpenAgentOptions, Pinfold } from "./pinfold.js";
export type { Reason } from "./reasons.js";
export type { RpcOptions, ServiceClient } from "./rpc.js";
export type { TaskOutputOptions } from "./tasks.js";
export type {
  EndTurnOptions,
  PromptOptions,
  StartAgentOptions,
  Status,
  Taken,
  Turn,
} from "./turns.js";
export type { Bytes } from "./values.js";
export type { WaitOptions } from "./waits.js";
export type { WatchOptions } from "./watch.js";
export { type Answerer, runWorker, TurnCancelled, type WorkerOptions } from "./worker.js";
