/** From recorded answers to the text that all clients must agree on. README.md has the rules. */

import type { Scenario } from "./scenario.js";
import type { Table, Value } from "./values.js";

/** One recorded answer: `body` has the key "answer" or "error". */
export interface Entry {
  number: number;
  op: string;
  body: Table;
}

const words = (text: string) => new Set(text.split(" "));

/** What differs from run to run, by key. */
const fixed = new Map<string, string>();
for (const [put, keys] of [
  [
    "<t>",
    "after created_at duration ended_at expires_at opened_at queued_at started_at stopped_at " +
      "system_time time user_time",
  ],
  ["<pid>", "keeper_pid pid surviving_pids worker_pid"],
  ["<revision>", "bookmark decision_revision next oldest_revision revision"],
  ["<n>", "max_rss_bytes"],
  ["<signals>", "signals"],
] as const) {
  for (const key of words(keys)) {
    fixed.set(key, put);
  }
}

const idKeys = words(
  "agent_id call_id call_ids consumed_call_ids delivery_id from_agent_id instance_id message_id " +
    "parent_id prompt_id prompt_ids read_id recipient_id request_id self_agent_id sub_agent_id " +
    "token_id tool_call_id turn_id wait_id watched_agent_id watching",
);
const textRules: readonly [RegExp, string][] = [
  [/duration_seconds: [0-9]+/g, "duration_seconds: <t>"],
  [/kill_signals: [^\n]*/g, "kill_signals: <signals>"],
  [/revision [0-9]+/g, "revision <revision>"],
];

/** Applies `text` to all strings, and `field` to values by their key where it gives one. */
function map(
  value: Value,
  text: (text: string) => string,
  field: (key: string) => string | undefined = () => undefined,
): Value {
  if (typeof value === "string") {
    return text(value);
  }
  if (Array.isArray(value)) {
    return value.map((inner) => map(inner, text, field));
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value);
    return Object.fromEntries(
      entries.map(([key, inner]) => [key, field(key) ?? map(inner, text, field)]),
    );
  }
  return value;
}

/** Replaces what differs from run to run, ids aside. */
export function plain(value: Value): Value {
  return map(value, plainText, (key) => fixed.get(key));
}

function plainText(text: string): string {
  return textRules.reduce((result, [pattern, put]) => result.replace(pattern, put), text);
}

/** Gives generated ids their numbers, in order of appearance. */
class Names {
  readonly #found = new Map<string, string>();

  constructor(readonly given: ReadonlySet<string>) {}

  collect(value: Value): void {
    if (Array.isArray(value)) {
      for (const inner of value) {
        this.collect(inner);
      }
    } else if (typeof value === "object" && value !== null) {
      for (const key of Object.keys(value).sort()) {
        const inner = value[key] ?? null;
        if (idKeys.has(key)) {
          this.#add(inner);
        }
        this.collect(inner);
      }
    }
  }

  #add(value: Value): void {
    if (Array.isArray(value)) {
      for (const inner of value) {
        this.#add(inner);
      }
    } else if (
      typeof value === "string" &&
      value !== "" &&
      !this.given.has(value) &&
      !this.#found.has(value)
    ) {
      this.#found.set(value, `<id:${this.#found.size + 1}>`);
    }
  }

  /** Puts the numbers in the place of the ids, wherever an id stands by itself in a text. */
  replace(value: Value): Value {
    const name = (word: string) => this.#found.get(word) ?? word;
    return map(value, (text) => text.replace(/[A-Za-z0-9_-]+/g, name));
  }
}

export function transcript(
  scenario: Scenario,
  directory: string,
  entries: readonly Entry[],
): string {
  const names = new Names(scenario.given);
  const steps = entries.map(({ number, op, body }) => {
    const inDirectory = map(plain(body), (text) => text.replaceAll(directory, "<dir>"));
    const step = { ...(inDirectory as Table), step: number, op };
    names.collect(step);
    return step;
  });
  return canonical({ scenario: scenario.name, steps: names.replace(steps) });
}

/** JSON with sorted keys, two spaces, and a newline at its end. */
export function canonical(value: Value): string {
  return `${JSON.stringify(sorted(value), undefined, 2)}\n`;
}

function sorted(value: Value): Value {
  if (Array.isArray(value)) {
    return value.map(sorted);
  }
  if (typeof value === "object" && value !== null) {
    const keys = Object.keys(value).sort();
    return Object.fromEntries(keys.map((key) => [key, sorted(value[key] ?? null)]));
  }
  return value;
}
