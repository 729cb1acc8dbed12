import { readFileSync } from "node:fs";
import { basename } from "node:path";

import { parse } from "yaml";

import { show, type Table, type Value } from "./values.js";

export interface Scenario {
  name: string;
  profile: string;
  steps: readonly Step[];
  /** Every string that the file has: what is not in it was generated. */
  given: ReadonlySet<string>;
}

export interface Step {
  number: number;
  op: string;
  args: Value;
  /** Runs beside the others, under this name. */
  async: string;
  client: string;
  save: Readonly<Record<string, string>>;
  /** `undefined` for all of the answer; empty for nothing. */
  record: readonly string[] | undefined;
}

export function load(file: string): Scenario {
  const parsed = parse(readFileSync(file, "utf8")) as { profile?: string; steps?: Table[] };
  const given = new Set<string>();
  const steps = (parsed.steps ?? []).map((raw, index) => {
    collect(raw, given);
    try {
      return newStep(index + 1, raw);
    } catch (error) {
      throw new Error(`${file}: step ${index + 1}: ${(error as Error).message}`);
    }
  });
  return {
    name: basename(file, ".yaml"),
    profile: parsed.profile ?? "default",
    steps,
    given,
  };
}

export function newStep(number: number, raw: Table): Step {
  const { async, client, save, record, error: _, about: __, ...rest } = raw;
  const operations = Object.entries(rest);
  const [operation] = operations;
  if (operation === undefined || operations.length > 1) {
    throw new Error(`not one operation: ${Object.keys(rest).join(", ")}`);
  }
  const [op, args] = operation;
  return {
    number,
    op,
    args,
    async: async === undefined ? "" : show(async),
    client: client === undefined ? "" : show(client),
    save: Object.fromEntries(
      Object.entries((save ?? {}) as Table).map(([name, path]) => [name, show(path)]),
    ),
    record: "record" in raw ? (Array.isArray(record) ? record.map(show) : []) : undefined,
  };
}

function collect(value: Value, into: Set<string>): void {
  if (typeof value === "string") {
    into.add(value);
  } else if (typeof value === "object" && value !== null) {
    for (const inner of Object.values(value)) {
      collect(inner, into);
    }
  }
}
