import { randomBytes } from "node:crypto";

import type { Duration } from "@bufbuild/protobuf/wkt";

/** Text, or the exact bytes where the operating system's strings are not UTF-8. */
export type Bytes = string | Uint8Array;

const encoder = new TextEncoder();

/** A fresh id, so that a request can be sent again. */
export function newId(prefix: string): string {
  return `${prefix}_${randomBytes(8).toString("hex")}`;
}

export function toBytes(value: Bytes | undefined): Uint8Array<ArrayBuffer> {
  if (value === undefined) {
    return new Uint8Array();
  }
  return typeof value === "string" ? encoder.encode(value) : new Uint8Array(value);
}

export function toEnv(
  env: Readonly<Record<string, Bytes>> | undefined,
): Record<string, Uint8Array<ArrayBuffer>> {
  return Object.fromEntries(
    Object.entries(env ?? {}).map(([name, value]) => [name, toBytes(value)]),
  );
}

/** The fields of a Duration; `undefined` stays absent. */
export function duration(ms: number): { seconds: bigint; nanos: number };
export function duration(ms: number | undefined): { seconds: bigint; nanos: number } | undefined;
export function duration(ms: number | undefined): { seconds: bigint; nanos: number } | undefined {
  if (ms === undefined) {
    return undefined;
  }
  const seconds = Math.trunc(ms / 1000);
  return { seconds: BigInt(seconds), nanos: Math.round((ms - seconds * 1000) * 1e6) };
}

export function toMs(value: Duration | undefined): number {
  return value === undefined ? 0 : Number(value.seconds) * 1000 + value.nanos / 1e6;
}

/** An object without the fields that are undefined: protobuf-es wants them absent. */
export function present<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as never;
}
