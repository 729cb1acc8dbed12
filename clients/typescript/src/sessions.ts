/**
 * The HTTP/2 connection under the RPCs: made when one is needed, and again after it was lost.
 *
 * Connect's own manager of sessions never settles when a connection ends between its beginning
 * and its first request, which is what a restart of the supervisor looks like.
 */

import * as http2 from "node:http2";

import type { GrpcTransportOptions } from "@connectrpc/connect-node";

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

export interface SessionOptions {
  /** Pings an open connection with RPCs on it, so that a dead peer is noticed. */
  pingIntervalMs?: number;
  pingTimeoutMs?: number;
}

const CONNECT_TIMEOUT_MS = 20_000;

export class Sessions implements SessionManager {
  readonly authority: string;
  readonly #connectOptions: http2.ClientSessionOptions | http2.SecureClientSessionOptions;
  readonly #options: SessionOptions;
  readonly #open = new Set<http2.ClientHttp2Session>();
  #current: Promise<http2.ClientHttp2Session> | undefined;

  constructor(
    authority: string,
    connectOptions: http2.ClientSessionOptions | http2.SecureClientSessionOptions,
    options: SessionOptions,
  ) {
    this.authority = authority;
    this.#connectOptions = connectOptions;
    this.#options = options;
  }

  async request(
    method: string,
    path: string,
    headers: http2.OutgoingHttpHeaders,
    options: Omit<http2.ClientSessionRequestOptions, "signal">,
  ): Promise<http2.ClientHttp2Stream> {
    this.#current ??= this.#connect();
    const session = await this.#current;
    const stream = session.request({ ...headers, ":method": method, ":path": path }, options);
    // A process may end when no RPC is on its way.
    session.ref();
    count(session, 1);
    stream.once("close", () => {
      if (count(session, -1) === 0) {
        session.unref();
      }
    });
    return stream;
  }

  notifyResponseByteRead(): void {}

  /** Ends all connections and what is on them. */
  close(): void {
    this.#current = undefined;
    for (const session of this.#open) {
      session.destroy(undefined, http2.constants.NGHTTP2_CANCEL);
    }
  }

  #connect(): Promise<http2.ClientHttp2Session> {
    const ready = new Promise<http2.ClientHttp2Session>((resolve, reject) => {
      const session = http2.connect(this.authority, this.#connectOptions);
      this.#open.add(session);
      const timer = setTimeout(
        () => session.destroy(lost("no connection within 20 s")),
        CONNECT_TIMEOUT_MS,
      );
      // RPCs on a session that says goodbye come to their end; the next one opens another.
      const retire = () => {
        clearTimeout(timer);
        if (this.#current === ready) {
          this.#current = undefined;
        }
      };
      session.once("connect", () => {
        clearTimeout(timer);
        session.unref();
        this.#ping(session);
        resolve(session);
      });
      session.on("goaway", retire);
      session.on("error", (error) => {
        retire();
        reject(error);
      });
      session.once("close", () => {
        retire();
        this.#open.delete(session);
        reject(lost("the connection was closed"));
      });
    });
    // Also what is thrown before there is a session, such as a directory that isn't there.
    ready.catch(() => {
      if (this.#current === ready) {
        this.#current = undefined;
      }
    });
    return ready;
  }

  #ping(session: http2.ClientHttp2Session): void {
    const { pingIntervalMs, pingTimeoutMs = 10_000 } = this.#options;
    if (pingIntervalMs === undefined) {
      return;
    }
    const interval = setInterval(() => {
      if ((streams.get(session) ?? 0) === 0) {
        return;
      }
      const timeout = setTimeout(
        () => session.destroy(lost("the supervisor does not answer pings")),
        pingTimeoutMs,
      ).unref();
      session.ping(() => clearTimeout(timeout));
    }, pingIntervalMs).unref();
    session.once("close", () => clearInterval(interval));
  }
}

const streams = new WeakMap<http2.ClientHttp2Session, number>();

function count(session: http2.ClientHttp2Session, change: number): number {
  const now = (streams.get(session) ?? 0) + change;
  streams.set(session, now);
  return now;
}

/** As Node's own errors of the network: `errors.ts` tells them by `code` and `syscall`. */
function lost(message: string): Error {
  return Object.assign(new Error(message), { code: "ECONNRESET", syscall: "connect" });
}
