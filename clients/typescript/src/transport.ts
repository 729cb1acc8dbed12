/** gRPC over HTTP/2: the socket, TLS, and the token that goes with every RPC. */

import { readFileSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";

import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { type Address, formatAddress, isPrivate, shortSocketPath } from "./address.js";
import { PinfoldError } from "./errors.js";
import { type SessionOptions, Sessions } from "./sessions.js";
import { present } from "./values.js";

/** TLS for a TCP address. The files are PEM. */
export interface Tls {
  /** Who signed the supervisor's certificate. Left out: the roots that Node knows. */
  ca?: string | undefined;
  /** The client's own certificate, where the supervisor asks for one. */
  certificate?: string | undefined;
  /** The key of `certificate`. */
  key?: string | undefined;
  /** The name in the supervisor's certificate, where it isn't the host of the address. */
  serverName?: string | undefined;
}

const MESSAGE_LIMIT = 64 * 1024 * 1024;

// Node's own limit, 10 MB, ends a connection with a few thousand parked waits.
const SESSION_MEMORY_MB = 1024;
// One stream of output would otherwise wait for the reader after each 64 KiB.
const WINDOW = 1024 * 1024;

const KEEPALIVE = { pingIntervalMs: 30_000, pingTimeoutMs: 10_000 };

export interface Channel {
  readonly transport: Transport;
  close(): void;
}

/** `PINFOLD_TLS_CA`, `_CERT`, `_KEY`, `_SERVER_NAME`; `undefined` when none of them is set. */
export function tlsFromEnvironment(): Tls | undefined {
  const env = process.env;
  const tls = present({
    ca: env["PINFOLD_TLS_CA"],
    certificate: env["PINFOLD_TLS_CERT"],
    key: env["PINFOLD_TLS_KEY"],
    serverName: env["PINFOLD_TLS_SERVER_NAME"],
  });
  return Object.keys(tls).length > 0 ? tls : undefined;
}

/** Connects with its first RPC. */
export function openChannel(address: Address, token: string, tls: Tls | undefined): Channel {
  if ("socket" in address) {
    return channel("http://localhost", token, {}, { createConnection: dialer(address.socket) });
  }
  if (tls === undefined) {
    if (token && !isPrivate(address)) {
      throw new PinfoldError(
        `a token is not sent to ${formatAddress(address)} in the clear: use TLS ` +
          "(PINFOLD_TLS_CA=FILE, or the option `tls`)",
        { code: "INVALID_ARGUMENT", reason: "TOKEN_WITHOUT_TLS" },
      );
    }
    return channel(`http://${address.host}`, token, KEEPALIVE, {});
  }
  const secure = present({
    ca: readPem(tls.ca),
    cert: readPem(tls.certificate),
    key: readPem(tls.key),
    servername: tls.serverName,
  });
  return channel(`https://${address.host}`, token, KEEPALIVE, secure);
}

type Connect = ConstructorParameters<typeof Sessions>[1];

function channel(
  baseUrl: string,
  token: string,
  options: SessionOptions,
  connect: Connect,
): Channel {
  const memory = { maxSessionMemory: SESSION_MEMORY_MB };
  const settings = { initialWindowSize: WINDOW };
  const sessions = new Sessions(baseUrl, { ...memory, settings, ...connect }, options);
  const transport = createGrpcTransport({
    baseUrl,
    sessionManager: sessions,
    interceptors: token ? [bearer(token)] : [],
    acceptCompression: [],
    readMaxBytes: MESSAGE_LIMIT,
    writeMaxBytes: MESSAGE_LIMIT,
  });
  return { transport, close: () => sessions.close() };
}

function dialer(path: string): () => Socket {
  return () => {
    const short = shortSocketPath(path);
    const socket = connectSocket(short.path);
    socket.once("connect", short.release).once("error", short.release);
    return socket;
  };
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}

function readPem(path: string | undefined): Buffer | undefined {
  if (path === undefined) {
    return undefined;
  }
  try {
    return readFileSync(path);
  } catch (error) {
    throw new PinfoldError(`cannot read ${path}: ${(error as Error).message}`, {
      code: "INVALID_ARGUMENT",
      reason: "TLS_FILE",
      cause: error,
    });
  }
}
