import { createRegistry, type Message, toJson } from "@bufbuild/protobuf";

import { PinfoldError } from "../src/index.js";
import {
  file_pinfold_v1_agent,
  file_pinfold_v1_agent_service,
  file_pinfold_v1_call,
  file_pinfold_v1_call_service,
  file_pinfold_v1_supervisor_service,
  file_pinfold_v1_task_service,
  file_pinfold_v1_tool_service,
  file_pinfold_v1_watch_service,
} from "../src/v1.js";

export type Value = string | number | boolean | null | Value[] | { [key: string]: Value };
export type Table = { [key: string]: Value };

/** What an operation gives: messages, and objects and lists of them. */
export type Answer =
  | Message
  | string
  | number
  | bigint
  | boolean
  | undefined
  | readonly Answer[]
  | { readonly [key: string]: Answer };

const registry = createRegistry(
  file_pinfold_v1_agent,
  file_pinfold_v1_agent_service,
  file_pinfold_v1_call,
  file_pinfold_v1_call_service,
  file_pinfold_v1_supervisor_service,
  file_pinfold_v1_task_service,
  file_pinfold_v1_tool_service,
  file_pinfold_v1_watch_service,
);

/**
 * An answer as JSON: a message by protobuf's own mapping with the names of the .proto files, or an
 * object of such.
 */
export function objectOf(answer: Answer): Value {
  if (answer === undefined) {
    return {};
  }
  if (typeof answer === "bigint") {
    return Number(answer);
  }
  if (typeof answer !== "object") {
    return answer;
  }
  if (isList(answer)) {
    return answer.map(objectOf);
  }
  if (isMessage(answer)) {
    const schema = registry.getMessage(answer.$typeName);
    if (schema === undefined) {
      throw new Error(`no schema of ${answer.$typeName}`);
    }
    return toJson(schema, answer, { registry, useProtoFieldName: true }) as Value;
  }
  const entries = Object.entries(answer)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => [key, objectOf(value)] as const);
  return Object.fromEntries(entries.filter(([, value]) => !isDefault(value)));
}

// `Array.isArray` doesn't narrow a readonly array away.
function isList(answer: object): answer is readonly Answer[] {
  return Array.isArray(answer);
}

function isMessage(answer: object): answer is Message {
  return "$typeName" in answer;
}

/** Left out, as protobuf's mapping leaves out default values. */
function isDefault(value: Value): boolean {
  return !value || (Array.isArray(value) && value.length === 0);
}

export function errorOf(failure: unknown): Table {
  if (!(failure instanceof PinfoldError)) {
    return { code: "UNKNOWN", message: failure instanceof Error ? failure.message : `${failure}` };
  }
  const { code, message, reason, metadata } = failure;
  return {
    code,
    message,
    ...(reason === "" ? {} : { reason }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata: { ...metadata } }),
  };
}

/** The value at a dotted path; a number is an index. */
export function find(value: Value | undefined, path: string): Value | undefined {
  if (path === "") {
    return value;
  }
  const [key = "", ...rest] = path.split(".");
  if (Array.isArray(value)) {
    return /^\d+$/.test(key) ? find(value[Number(key)], rest.join(".")) : undefined;
  }
  if (typeof value === "object" && value !== null) {
    return find(value[key], rest.join("."));
  }
  return undefined;
}

/** Keeps the values at some dotted paths; `*` goes through a list. */
export function pick(value: Value, paths: readonly string[]): Value {
  if (Array.isArray(value)) {
    const { whole, rest } = below(paths, "*");
    return whole ? value : value.map((inner) => pick(inner, rest));
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const result: Table = {};
  for (const [key, inner] of Object.entries(value)) {
    const { whole, rest } = below(paths, key);
    if (whole) {
      result[key] = inner;
    } else if (rest.length > 0) {
      result[key] = pick(inner, rest);
    }
  }
  return result;
}

function below(paths: readonly string[], key: string): { whole: boolean; rest: string[] } {
  const rest: string[] = [];
  for (const path of paths) {
    if (path === key) {
      return { whole: true, rest: [] };
    }
    if (path.startsWith(`${key}.`)) {
      rest.push(path.slice(key.length + 1));
    }
  }
  return { whole: false, rest };
}

/** A value in a text: of `${name}`, or compared with one. */
export function show(value: Value | undefined): string {
  return value === undefined || value === null ? "<nil>" : String(value);
}
