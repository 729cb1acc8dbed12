/** The gRPC channel: options, TLS, and the token that goes with every RPC. */

import { readFileSync } from "node:fs";

import { type ChannelOptions, Client, credentials, Metadata } from "@grpc/grpc-js";

import { type Address, formatAddress, isPrivate, socketTarget } from "./address.js";
import { PinfoldError } from "./errors.js";
import { present } from "./values.js";

/** TLS for a TCP address. All are paths of PEM files. */
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

export interface Channel {
  readonly client: Client;
  readonly metadata: Metadata;
  close(): void;
}

const OPTIONS: ChannelOptions = {
  // The supervisor has bounds of its own, with names.
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  // A connection per client: thousands of parked waits spread over several.
  "grpc.use_local_subchannel_pool": 1,
  // Repeats are this client's own: they carry ids.
  "grpc.enable_retries": 0,
  // A supervisor that was started again is there in a fraction of a second.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 1000,
  "grpc.enable_http_proxy": 0,
  "grpc.enable_channelz": 0,
  // One stream of output would otherwise wait for the reader after each 64 KiB.
  "grpc-node.flow_control_window": 1024 * 1024,
};
const TCP_OPTIONS: ChannelOptions = {
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.keepalive_permit_without_calls": 1,
};

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
  const metadata = new Metadata();
  if (token) {
    metadata.set("authorization", `Bearer ${token}`);
  }
  if ("socket" in address) {
    const { target, release } = socketTarget(address.socket);
    // The path is no name of a host, and grpc-js would send it as one.
    const options = { ...OPTIONS, "grpc.default_authority": "localhost" };
    const client = new Client(target, credentials.createInsecure(), options);
    return {
      client,
      metadata,
      close: () => {
        client.close();
        release();
      },
    };
  }
  if (tls === undefined && token && !isPrivate(address)) {
    throw new PinfoldError(
      `a token is not sent to ${formatAddress(address)} in the clear: use TLS ` +
        "(PINFOLD_TLS_CA=FILE, or the option `tls`)",
      { code: "INVALID_ARGUMENT", reason: "TOKEN_WITHOUT_TLS" },
    );
  }
  const options: ChannelOptions = { ...OPTIONS, ...TCP_OPTIONS };
  if (tls?.serverName) {
    options["grpc.ssl_target_name_override"] = tls.serverName;
  }
  const client = new Client(address.host, channelCredentials(tls), options);
  return { client, metadata, close: () => client.close() };
}

function channelCredentials(tls: Tls | undefined) {
  if (tls === undefined) {
    return credentials.createInsecure();
  }
  const [ca, key, certificate] = [readPem(tls.ca), readPem(tls.key), readPem(tls.certificate)];
  try {
    return credentials.createSsl(ca, key, certificate);
  } catch (error) {
    throw new PinfoldError(`cannot use the TLS files: ${(error as Error).message}`, {
      code: "INVALID_ARGUMENT",
      reason: "TLS_FILE",
      cause: error,
    });
  }
}

function readPem(path: string | undefined): Buffer | null {
  if (path === undefined) {
    return null;
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
