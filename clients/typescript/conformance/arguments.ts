import type { Agent, Bytes, Pinfold } from "../src/index.js";
import type { Run } from "./run.js";
import type { Step } from "./scenario.js";
import { show, type Table, type Value } from "./values.js";

/** A fault of the scenario, not an answer. */
export class Fault extends Error {}

/** The arguments of one operation. */
export class Arguments {
  constructor(
    readonly run: Run,
    readonly step: Step,
    readonly values: Table,
    readonly signal: AbortSignal,
  ) {}

  wrong(message: string): never {
    throw new Fault(`${this.step.op}: ${message}`);
  }

  has(key: string): boolean {
    return key in this.values;
  }

  text(key: string): string {
    const value = this.values[key];
    return value === undefined || value === null ? "" : show(value);
  }

  flag(key: string): boolean {
    const value = this.values[key] ?? false;
    return typeof value === "boolean" ? value : this.wrong(`${key} is not a bool`);
  }

  number(key: string): number {
    const value = this.values[key] ?? 0;
    const number = typeof value === "string" && value !== "" ? Number(value) : value;
    if (typeof number !== "number" || Number.isNaN(number)) {
      return this.wrong(`${key} is not a number`);
    }
    return number;
  }

  /** Seconds in the scenario. */
  ms(key: string): number | undefined {
    return this.has(key) ? this.number(key) * 1000 : undefined;
  }

  bytes(key: string): Bytes | undefined {
    const value = this.values[key];
    return value === undefined || value === null ? undefined : raw(value);
  }

  list(key: string): Bytes[] {
    const value = this.values[key] ?? [];
    return Array.isArray(value) ? value.map(raw) : this.wrong(`${key} is not a list`);
  }

  texts(key: string): string[] {
    return this.list(key).map((value) =>
      typeof value === "string" ? value : Buffer.from(value).toString(),
    );
  }

  table(key: string): Record<string, Bytes> {
    const entries = Object.entries((this.values[key] ?? {}) as Table);
    return Object.fromEntries(entries.map(([name, value]) => [name, raw(value)]));
  }

  /** The step's own, or the scenario's. */
  client(): Pinfold {
    return this.run.clients.get(this.step.client) ?? this.wrong(`no client "${this.step.client}"`);
  }

  /** The handle that the argument names. */
  agent(name = this.text("agent")): Agent {
    const found = this.run.agents.get(name) ?? this.wrong(`no agent "${name}"`);
    return this.step.client === "" ? found : this.client().agent(found.agentId);
  }
}

/** A string, or {base64: ...}. */
function raw(value: Value): Bytes {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return new Uint8Array(Buffer.from(show(value["base64"]), "base64"));
  }
  return show(value);
}
