/** One connection: the clients of all services, and RPCs that survive a restart of the supervisor. */

import { setMaxListeners } from "node:events";

import type { GenService, GenServiceMethods } from "@bufbuild/protobuf/codegenv2";

import { type Address, formatAddress } from "./address.js";
import { type Channel, openChannel, type Tls } from "./channel.js";
import { fromRpc, PinfoldError } from "./errors.js";
import { AgentService } from "./gen/pinfold/v1/agent_service_pb.js";
import { CallService } from "./gen/pinfold/v1/call_service_pb.js";
import { SupervisorService } from "./gen/pinfold/v1/supervisor_service_pb.js";
import { TaskService } from "./gen/pinfold/v1/task_service_pb.js";
import { ToolService } from "./gen/pinfold/v1/tool_service_pb.js";
import { WatchService } from "./gen/pinfold/v1/watch_service_pb.js";
import { Outage } from "./retry.js";
import { type RpcOptions, type ServiceClient, serviceClient } from "./rpc.js";

/** What every method takes. */
export interface Abortable {
  /** Ends the RPC; the promise rejects with the signal's reason. What was asked for may happen. */
  signal?: AbortSignal | undefined;
}

export interface ConnectionOptions {
  token: string;
  tls: Tls | undefined;
  patienceMs: number;
  deadlineMs: number;
}

interface UnaryOptions extends Abortable {
  /** It may take as long as it likes. */
  parks?: boolean;
  /** Sent again after a lost connection, unless false. */
  repeat?: boolean;
  outage?: Outage;
}

/** Connects with its first RPC. */
export class Connection {
  readonly address: Address;
  readonly patienceMs: number;
  readonly #options: ConnectionOptions;
  readonly #clients = new Map<unknown, unknown>();
  #channel: Channel | undefined;
  #closed = false;

  constructor(address: Address, options: ConnectionOptions) {
    this.address = address;
    this.patienceMs = options.patienceMs;
    this.#options = options;
    // Wrong TLS files and the like are told at once.
    this.#channel = openChannel(address, options.token, options.tls);
  }

  close(): void {
    this.#closed = true;
    this.#channel?.close();
    this.#channel = undefined;
    this.#clients.clear();
  }

  get agents(): ServiceClient<typeof AgentService> {
    return this.#client(AgentService);
  }

  get calls(): ServiceClient<typeof CallService> {
    return this.#client(CallService);
  }

  get tasks(): ServiceClient<typeof TaskService> {
    return this.#client(TaskService);
  }

  get tools(): ServiceClient<typeof ToolService> {
    return this.#client(ToolService);
  }

  get watches(): ServiceClient<typeof WatchService> {
    return this.#client(WatchService);
  }

  get supervisor(): ServiceClient<typeof SupervisorService> {
    return this.#client(SupervisorService);
  }

  #client<S extends GenService<GenServiceMethods>>(service: S): ServiceClient<S> {
    if (this.#channel === undefined) {
      throw closedError();
    }
    let client = this.#clients.get(service) as ServiceClient<S> | undefined;
    if (client === undefined) {
      client = serviceClient(service, this.#channel.client, this.#channel.metadata);
      this.#clients.set(service, client);
    }
    return client;
  }

  /** One RPC, sent again after a lost connection. */
  async unary<R>(
    call: (options: RpcOptions) => Promise<R>,
    { signal, parks = false, repeat = true, outage }: UnaryOptions = {},
  ): Promise<R> {
    const trouble = outage ?? new Outage(repeat ? this.patienceMs : 0);
    for (;;) {
      const started = performance.now();
      try {
        return await this.attempt(call, { signal, parks });
      } catch (failure) {
        await this.bear(trouble, failure, started, signal);
      }
    }
  }

  /** One attempt. */
  async attempt<R>(
    call: (options: RpcOptions) => Promise<R>,
    { signal, parks = true }: { signal?: AbortSignal | undefined; parks?: boolean } = {},
  ): Promise<R> {
    signal?.throwIfAborted();
    const options: RpcOptions = {};
    if (signal !== undefined) {
      shared(signal);
      options.signal = signal;
    }
    if (!parks) {
      options.timeoutMs = this.#options.deadlineMs;
    }
    return await call(options);
  }

  /**
   * A server stream, opened again after a lost connection. `open` makes the request that goes on
   * where the last one stopped, or `undefined` when there is nothing left to ask for.
   */
  async *stream<R>(
    open: (options: RpcOptions) => AsyncIterable<R> | undefined,
    signal?: AbortSignal,
  ): AsyncGenerator<R, void, undefined> {
    const outage = new Outage(this.patienceMs);
    for (;;) {
      signal?.throwIfAborted();
      const started = performance.now();
      try {
        const source = open(signal === undefined ? {} : { signal: shared(signal) });
        if (source === undefined) {
          return;
        }
        for await (const response of source) {
          outage.over();
          yield response;
        }
        return;
      } catch (failure) {
        await this.bear(outage, failure, started, signal);
      }
    }
  }

  /** Sleeps until the next attempt, or throws what `failure` means. */
  async bear(
    outage: Outage,
    failure: unknown,
    started: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    signal?.throwIfAborted();
    if (this.#closed) {
      throw closedError();
    }
    const error = fromRpc(failure);
    try {
      await outage.bear(error, started, signal);
    } catch (given) {
      if (given === error && error.code === "UNAVAILABLE" && error.reason === "") {
        throw unreachable(this.address, error);
      }
      throw given;
    }
  }
}

/** A signal may stand for any number of RPCs: more listeners than ten are no leak. */
function shared(signal: AbortSignal): AbortSignal {
  setMaxListeners(0, signal);
  return signal;
}

function closedError(): PinfoldError {
  return new PinfoldError("the client is closed", { code: "UNAVAILABLE", reason: "CLIENT_CLOSED" });
}

/** "Not there", said so that one knows what to do. */
function unreachable(address: Address, error: PinfoldError): PinfoldError {
  const hint =
    "socket" in address
      ? "start it with `pinfold serve`, or see the options `state` and `address`"
      : error.message;
  return new PinfoldError(`no supervisor at ${formatAddress(address)}: ${hint}`, {
    code: "UNAVAILABLE",
    cause: error.cause,
  });
}
