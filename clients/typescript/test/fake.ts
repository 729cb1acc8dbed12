/** A supervisor of a few lines, on a unix socket in this process, that fails as it is told. */

import { mkdtempSync, rmSync } from "node:fs";
import * as http2 from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import { type ConnectOptions, Pinfold } from "../src/index.js";

export class Fake implements AsyncDisposable {
  readonly state = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  readonly socket = join(this.state, "pinfold.sock");
  readonly #routes: (router: ConnectRouter) => void;
  readonly #sessions = new Set<http2.ServerHttp2Session>();
  readonly #clients: Pinfold[] = [];
  #server: http2.Http2Server | undefined;

  private constructor(routes: (router: ConnectRouter) => void) {
    this.#routes = routes;
  }

  static async start(routes: (router: ConnectRouter) => void): Promise<Fake> {
    const fake = new Fake(routes);
    await fake.listen();
    return fake;
  }

  async listen(): Promise<void> {
    const server = http2.createServer(connectNodeAdapter({ routes: this.#routes }));
    server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("close", () => this.#sessions.delete(session));
    });
    await new Promise<void>((resolve) => server.listen(this.socket, resolve));
    this.#server = server;
  }

  client(options: ConnectOptions = {}): Pinfold {
    const client = Pinfold.connect({ state: this.state, token: "", patienceMs: 5000, ...options });
    this.#clients.push(client);
    return client;
  }

  /** As a crash: connections end in the middle. */
  dropConnections(): void {
    for (const session of this.#sessions) {
      session.destroy();
    }
  }

  async crash(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server !== undefined) {
      const closed = new Promise((resolve) => server.close(resolve));
      this.dropConnections();
      await closed;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) {
      client.close();
    }
    await this.crash();
    rmSync(this.state, { recursive: true, force: true });
  }
}

/** A refusal with google.rpc.ErrorInfo, as the supervisor makes them. */
export function refusal(
  code: Code,
  reason: string,
  message: string,
  metadata: Record<string, string> = {},
): ConnectError {
  const info = new BinaryWriter().tag(1, 2).string(reason).tag(2, 2).string("pinfold");
  for (const [key, value] of Object.entries(metadata)) {
    info.tag(3, 2).fork().tag(1, 2).string(key).tag(2, 2).string(value).join();
  }
  const error = new ConnectError(message, code);
  error.details.push({ type: "google.rpc.ErrorInfo", value: info.finish() });
  return error;
}

export type Init<D extends DescMessage> = MessageInitShape<D>;
export { Code, toBinary };
