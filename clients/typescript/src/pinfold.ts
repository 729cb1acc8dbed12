import { type Address, formatAddress, resolveAddress } from "./address.js";
import { Agent } from "./agent.js";
import { type Tls, tlsFromEnvironment } from "./channel.js";
import { type Abortable, Connection } from "./connection.js";
import { type Agent as AgentInfo, Surface } from "./gen/pinfold/v1/agent_pb.js";
import type { Call } from "./gen/pinfold/v1/call_pb.js";
import type {
  CreateTokenResponse,
  GetInfoResponse,
  ListTokensResponse_Token,
  StopResponse,
} from "./gen/pinfold/v1/supervisor_service_pb.js";
import type { Task } from "./gen/pinfold/v1/task_service_pb.js";
import { type ListToolsResponse, ToolSurface } from "./gen/pinfold/v1/tool_service_pb.js";
import type { Event, WatchResponse } from "./gen/pinfold/v1/watch_service_pb.js";
import { allAgents, allCalls, allTasks, type ListOptions } from "./lists.js";
import { type Bytes, duration, newId, present, toBytes, toEnv } from "./values.js";
import { events, type WatchOptions, watch } from "./watch.js";

export interface ConnectOptions {
  /** "unix:PATH", a path with a slash, or "HOST:PORT". */
  address?: string | undefined;
  /** A state directory: its socket is connected to. */
  state?: string | undefined;
  /** Default `PINFOLD_TOKEN`. */
  token?: string | undefined;
  /** For TCP; default from `PINFOLD_TLS_CA`, `_CERT`, `_KEY`, `_SERVER_NAME`. */
  tls?: Tls | undefined;
  /** How long to go on trying when the supervisor can't be reached; default 30 seconds. */
  patienceMs?: number | undefined;
  /** How long an RPC that answers at once may take; default 60 seconds. */
  deadlineMs?: number | undefined;
}

export interface OpenAgentOptions extends Abortable {
  /** How background work is collected; default "tau". */
  surface?: "tau" | "tasks" | "none" | undefined;
  label?: string | undefined;
  /** Absolute; default the directory that the supervisor was started in. */
  cwd?: Bytes | undefined;
  /** For all calls of the agent. */
  env?: Readonly<Record<string, Bytes>> | undefined;
  /** Over it calls queue; 0, the default: no limit. */
  maxRunningCalls?: number | undefined;
  /** 0, the default: the supervisor's setting. */
  maxActiveTasks?: number | undefined;
  /** Tools that `listTools` and `callTool` hide from this agent. */
  hiddenTools?: readonly string[] | undefined;
}

const SURFACES = { tau: Surface.TAU, tasks: Surface.TASKS, none: Surface.NONE };
const TOOL_SURFACES = {
  tau: ToolSurface.TAU,
  tasks: ToolSurface.TASKS,
  both: ToolSurface.BOTH,
};

/**
 * A connection to a supervisor.
 *
 * RPCs that are safe to repeat are sent again, with the same ids, while the supervisor can't be
 * reached, for `patienceMs`; then they reject with UNAVAILABLE. Every failed RPC is a
 * {@link PinfoldError}. All methods take an `AbortSignal`.
 *
 * @example
 * ```ts
 * await using pinfold = Pinfold.connect();
 * const agent = await pinfold.openAgent("me");
 * const answer = await agent.run("make test");
 * console.log(answer.text);
 * ```
 */
export class Pinfold {
  /** The RPCs as they are, for what has no method here. */
  readonly connection: Connection;

  private constructor(connection: Connection) {
    this.connection = connection;
  }

  /**
   * A client of the supervisor at the first that is there of: `address`, the socket in `state`,
   * `PINFOLD_ADDRESS`, the socket in the default state directory (`PINFOLD_STATE`, else `pinfold`
   * in `$XDG_STATE_HOME` or `~/.local/state`).
   *
   * The connection is made with the first RPC. Throws INVALID_ARGUMENT for an address that is
   * none, or for TLS files that can't be read.
   */
  static connect(options: ConnectOptions = {}): Pinfold {
    const address = resolveAddress(options.address, options.state);
    return new Pinfold(
      new Connection(address, {
        token: options.token ?? process.env["PINFOLD_TOKEN"] ?? "",
        tls: options.tls ?? tlsFromEnvironment(),
        patienceMs: options.patienceMs ?? 30_000,
        deadlineMs: options.deadlineMs ?? 60_000,
      }),
    );
  }

  /** "unix:PATH" or "HOST:PORT". */
  get address(): string {
    const address: Address = this.connection.address;
    return formatAddress(address);
  }

  /** Ends the connection. Calls run on; waits that are not settled are cancelled. */
  close(): void {
    this.connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  // Agents

  /**
   * Opens a root agent, or returns the one with this id and these settings. ALREADY_EXISTS when
   * the id is taken by an agent with other settings.
   */
  async openAgent(agentId = "", options: OpenAgentOptions = {}): Promise<Agent> {
    const id = agentId || newId("agent");
    const request = present({
      agentId: id,
      surface: options.surface && SURFACES[options.surface],
      label: options.label,
      cwd: toBytes(options.cwd),
      env: toEnv(options.env),
      maxRunningCalls: options.maxRunningCalls,
      maxActiveTasks: options.maxActiveTasks,
      hiddenTools: [...(options.hiddenTools ?? [])],
    });
    const { agent, token } = await this.connection.unary(
      (call) => this.connection.agents.openAgent(request, call),
      { signal: options.signal },
    );
    return new Agent(this.connection, agent?.agentId ?? id, token);
  }

  /** A handle of an agent that was opened before. Asks nobody. */
  agent(agentId: string): Agent {
    return new Agent(this.connection, agentId);
  }

  /** All agents that the token reaches. */
  async listAgents(
    options: ListOptions & { parentId?: string | undefined } = {},
  ): Promise<AgentInfo[]> {
    return await allAgents(this.connection, options.parentId ?? "", options);
  }

  /** Calls in start order; of all agents that the token reaches when no agent is named. */
  async listCalls(options: ListOptions & { agentId?: string | undefined } = {}): Promise<Call[]> {
    return await allCalls(this.connection, options.agentId ?? "", options);
  }

  /** Tasks in start order; of all agents that the token reaches when no agent is named. */
  async listTasks(options: ListOptions & { agentId?: string | undefined } = {}): Promise<Task[]> {
    return await allTasks(this.connection, options.agentId ?? "", options);
  }

  /** Tools with their JSON Schemas, and a guidance section for a system prompt. */
  async listTools(
    surface: "tau" | "tasks" | "both" = "both",
    { agentId = "", signal }: Abortable & { agentId?: string | undefined } = {},
  ): Promise<ListToolsResponse> {
    const request = { agentId, surface: TOOL_SURFACES[surface] };
    return await this.connection.unary((call) => this.connection.tools.listTools(request, call), {
      signal,
    });
  }

  // The log

  /**
   * Responses as the supervisor sends them; events of one decision are in one of them.
   *
   * After a lost connection it goes on behind what was seen: nothing is missed or repeated. A
   * snapshot that was not complete begins anew. OUT_OF_RANGE for a revision that is not kept.
   */
  watch(options: WatchOptions = {}): AsyncGenerator<WatchResponse, void, undefined> {
    return watch(this.connection, options);
  }

  /** The same, one event at a time and without the snapshot. */
  events(options: WatchOptions = {}): AsyncGenerator<Event, void, undefined> {
    return events(this.connection, options);
  }

  // The supervisor

  /** Version, limits, capabilities, and how much there is of everything. */
  async info({ signal }: Abortable = {}): Promise<GetInfoResponse> {
    return await this.connection.unary((call) => this.connection.supervisor.getInfo({}, call), {
      signal,
    });
  }

  /** Lets no new call start from now on. Returns how many are live. */
  async drain({ signal }: Abortable = {}): Promise<number> {
    const { liveCalls } = await this.connection.unary(
      (call) => this.connection.supervisor.drain({}, call),
      { signal },
    );
    return liveCalls;
  }

  /**
   * Ends all calls and the supervisor; returns when no process is left. With `keepGroups` only
   * the daemon exits; calls run on for the next one. Never repeated after a lost connection.
   */
  async stop({
    keepGroups = false,
    graceMs,
    reason = "",
    signal,
  }: Abortable & {
    keepGroups?: boolean | undefined;
    graceMs?: number | undefined;
    reason?: string | undefined;
  } = {}): Promise<StopResponse> {
    const request = present({ keepGroups, grace: duration(graceMs), reason });
    return await this.connection.unary((call) => this.connection.supervisor.stop(request, call), {
      parks: true,
      repeat: false,
      signal,
    });
  }

  /** A token for operators, or for one agent and what is below it. It is shown once. */
  async createToken({
    agentId = "",
    label = "",
    validForMs,
    signal,
  }: Abortable & {
    agentId?: string | undefined;
    label?: string | undefined;
    validForMs?: number | undefined;
  } = {}): Promise<CreateTokenResponse> {
    const request = present({ agentId, label, validFor: duration(validForMs) });
    return await this.connection.unary(
      (call) => this.connection.supervisor.createToken(request, call),
      { repeat: false, signal },
    );
  }

  async listTokens({ signal }: Abortable = {}): Promise<ListTokensResponse_Token[]> {
    const { tokens } = await this.connection.unary(
      (call) => this.connection.supervisor.listTokens({}, call),
      { signal },
    );
    return tokens;
  }

  async revokeToken(tokenId: string, { signal }: Abortable = {}): Promise<void> {
    await this.connection.unary(
      (call) => this.connection.supervisor.revokeToken({ tokenId }, call),
      { signal },
    );
  }
}
