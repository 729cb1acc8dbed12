/** Where the supervisor is: an address, or a state directory with its socket in it. */

import { closeSync, constants, openSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, resolve as resolvePath } from "node:path";

import { PinfoldError } from "./errors.js";

export const SOCKET_NAME = "pinfold.sock";

// sun_path is 108 bytes with its closing zero.
const SOCKET_PATH_LIMIT = 107;
const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\]):/;

/** `socket` is the path of a unix socket, `host` is "HOST:PORT". */
export type Address = { readonly socket: string } | { readonly host: string };

/** `PINFOLD_STATE`, or the user's state directory for pinfold. */
export function defaultState(): string {
  const { PINFOLD_STATE: state, XDG_STATE_HOME: home } = process.env;
  if (state) {
    return state;
  }
  return join(home?.trim() ? home : join(homedir(), ".local", "state"), "pinfold");
}

/**
 * The first that is there of: `address`, the socket in `state`, `PINFOLD_ADDRESS`, the socket in
 * the default state directory.
 */
export function resolveAddress(address?: string, state?: string): Address {
  const named = address ?? (state === undefined ? process.env["PINFOLD_ADDRESS"] : undefined);
  if (!named) {
    return { socket: join(resolvePath(state ?? defaultState()), SOCKET_NAME) };
  }
  if (named.startsWith("unix:")) {
    return { socket: resolvePath(named.replace(/^unix:(\/\/(?=\/))?/, "")) };
  }
  if (named.includes("/")) {
    return { socket: resolvePath(named) };
  }
  if (!/^.+:\d{1,5}$/.test(named)) {
    throw new PinfoldError(`not an address: "${named}" (expected unix:PATH or HOST:PORT)`, {
      code: "INVALID_ARGUMENT",
      reason: "INVALID_ADDRESS",
    });
  }
  return { host: named };
}

/** Nothing sent there leaves this machine. */
export function isPrivate(address: Address): boolean {
  return "socket" in address || LOOPBACK.test(address.host);
}

export function formatAddress(address: Address): string {
  return "socket" in address ? `unix:${address.socket}` : address.host;
}

// What a gRPC target can carry as it is; other bytes have a meaning in URIs.
const PLAIN = /^[A-Za-z0-9/._~-]+$/;

/**
 * A gRPC target for a socket. A long or odd path is reached through a descriptor of its directory,
 * which stays open until `release`.
 */
export function socketTarget(path: string): { target: string; release: () => void } {
  if (Buffer.byteLength(path) <= SOCKET_PATH_LIMIT && PLAIN.test(path)) {
    return { target: `unix:${path}`, release: () => {} };
  }
  let directory: number;
  try {
    directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  } catch {
    // Connecting then fails with the usual "not there".
    return { target: `unix:/proc/self/fd/none/${SOCKET_NAME}`, release: () => {} };
  }
  return {
    target: `unix:/proc/self/fd/${directory}/${basename(path)}`,
    release: () => closeSync(directory),
  };
}
