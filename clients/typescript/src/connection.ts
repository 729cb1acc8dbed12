/** One connection: the clients of all services, and RPCs that survive a restart of the supervisor. */

import { setMaxListeners } from "node:events";

import type { DescService } from "@bufbuild/protobuf";
import { type CallOptions, type Client, createClient } from "@connectrpc/connect";

import { type Address, formatAddress } from "./address.js";
import { fromRpc, PinfoldError } from "./errors.js";
import { AgentService } from "./gen/pinfold/v1/agent_service_pb.js";
import { CallService } from "./gen/pinfold/v1/call_service_pb.js";
import { SupervisorService } from "./gen/pinfold/v1/supervisor_service_pb.js";
import { TaskService } from "./gen/pinfold/v1/task_service_pb.js";
import { ToolService } from "./gen/pinfold/v1/tool_service_pb.js";
import { WatchService } from "./gen/pinfold/v1/watch_service_pb.js";
import { Outage } from "./retry.js";
import { type Channel, openChannel, type Tls } from "./transport.js";

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
  readonly #clients = new Map<DescService, unknown>();
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

  get agents(): Client<typeof AgentService> {
    return this.#client(AgentService);
  }

  get calls(): Client<typeof CallService> {
    return this.#client(CallService);
  }

  get tasks(): Client<typeof TaskService> {
    return this.#client(TaskService);
  }

  get tools(): Client<typeof ToolService> {
    return this.#client(ToolService);
  }

  get watches(): Client<typeof WatchService> {
    return this.#client(WatchService);
  }

  get supervisor(): Client<typeof SupervisorService> {
    return this.#client(SupervisorService);
  }

  #client<S extends DescService>(service: S): Client<S> {
    if (this.#channel === undefined) {
      throw closedError();
    }
    let client = this.#clients.get(service) as Client<S> | undefined;
    if (client === undefined) {
      client = createClient(service, this.#channel.transport);
      this.#clients.set(service, client);
    }
    return client;
  }

  /** One RPC, sent again after a lost connection. */
  async unary<R>(
    call: (options: CallOptions) => Promise<R>,
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
    call: (options: CallOptions) => Promise<R>,
    { signal, parks = true }: { signal?: AbortSignal | undefined; parks?: boolean } = {},
  ): Promise<R> {
    signal?.throwIfAborted();
    const options: CallOptions = {};
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
    open: (options: CallOptions) => AsyncIterable<R> | undefined,
    signal?: AbortSignal,
  ): AsyncGenerator<R, void, undefined> {
    const outage = new Outage(this.patienceMs);
    for (;;) {
      signal?.throwIfAborted();
      // Connect's iterables can't be told to stop in any other way.
      const own = new AbortController();
      const started = performance.now();
      try {
        const source = open({
          signal: signal === undefined ? own.signal : AbortSignal.any([shared(signal), own.signal]),
        });
        if (source === undefined) {
          return;
        }
        for await (const response of source) {
          outage.over();
          yield response;
        }
        return;
      } catch (failure) {
        own.abort();
        await this.bear(outage, failure, started, signal);
      } finally {
        own.abort();
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
