import { type Agent, Pinfold } from "../src/index.js";
import { Arguments, Fault } from "./arguments.js";
import { operations, silent } from "./operations.js";
import { newStep, type Scenario, type Step } from "./scenario.js";
import { canonical, type Entry, plain } from "./transcript.js";
import { errorOf, find, objectOf, pick, show, type Table, type Value } from "./values.js";

/** A step that runs beside the others. */
interface Beside {
  step: Step;
  abort: AbortController;
  done: Promise<Table>;
}

/** One scenario on its way. */
export class Run {
  readonly clients = new Map<string, Pinfold>();
  readonly agents = new Map<string, Agent>();
  readonly saved = new Map<string, Value | undefined>();
  readonly #opened: Agent[] = [];
  readonly #waiting = new Map<string, Beside>();

  private constructor(
    readonly scenario: Scenario,
    /** The log's revision when the scenario began. */
    readonly begin: bigint,
    readonly limit: AbortSignal,
  ) {}

  static async begin(scenario: Scenario, directory: string, limit: AbortSignal): Promise<Run> {
    const client = Pinfold.connect();
    const { revision } = await client.info({ signal: limit });
    const run = new Run(scenario, revision + 1n, limit);
    run.clients.set("", client);
    run.saved.set("dir", directory).set("begin", `${run.begin}`);
    return run;
  }

  /** Stops what the scenario opened; nothing of it is left for the next. */
  async close(): Promise<void> {
    for (const { abort } of this.#waiting.values()) {
      abort.abort();
    }
    for (const agent of this.#opened) {
      // It may have been stopped, or be out of this token's reach.
      await agent.stop({ graceMs: 0, signal: AbortSignal.timeout(60_000) }).catch(() => {});
    }
    for (const client of this.clients.values()) {
      client.close();
    }
  }

  keep(name: string, agent: Agent, opened: boolean): void {
    this.agents.set(name, agent);
    this.saved.set(name, agent.agentId).set(`${name}.token`, agent.token);
    if (opened) {
      this.#opened.push(agent);
    }
  }

  async steps(): Promise<Entry[]> {
    const entries: Entry[] = [];
    for (const step of this.scenario.steps) {
      if (this.limit.aborted) {
        throw new Fault(`step ${step.number}: it took too long`);
      }
      if (step.async !== "") {
        this.#start(step);
        continue;
      }
      try {
        const [subject, body] = await this.#finish(step);
        append(entries, subject, body);
      } catch (error) {
        throw new Fault(`step ${step.number}: ${(error as Error).message}`);
      }
    }
    return entries;
  }

  /** The entry belongs to the first value: for a join, the step that ran beside. */
  async #finish(step: Step): Promise<[Step, Table]> {
    if (step.op === "race") {
      return [step, await this.#race(step)];
    }
    if (step.op !== "join" && step.op !== "abandon") {
      const body = await this.#perform(step, this.limit);
      this.#save(step, body);
      return [step, body];
    }
    const name = show(step.args);
    const beside = this.#waiting.get(name);
    if (beside === undefined) {
      throw new Fault(`nothing runs as "${name}"`);
    }
    this.#waiting.delete(name);
    if (step.op === "abandon") {
      beside.abort.abort();
      await beside.done;
      return [beside.step, { answer: { abandoned: true } }];
    }
    const body = await beside.done;
    this.#save(beside.step, body);
    return [beside.step, body];
  }

  #start(step: Step): void {
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, this.limit]);
    const done = this.#perform(step, signal).catch((error: Error) => ({
      error: { message: error.message },
    }));
    this.#waiting.set(step.async, { step, abort, done });
  }

  /** Runs steps at the same time. Who wins is open, so the answers are put into an order. */
  async #race(whole: Step): Promise<Table> {
    const steps = Array.isArray(whole.args) ? (whole.args as Table[]) : [];
    const bodies = await Promise.all(
      steps.map((raw) => this.#perform(newStep(whole.number, raw), this.limit)),
    );
    const keyed = bodies.map((body) => ({ body, key: canonical(plain(body)) }));
    keyed.sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    return { answer: { answers: keyed.map(({ body }) => body) } };
  }

  /** Throws a fault of the scenario; an error of the client is an answer. */
  async #perform(step: Step, signal: AbortSignal): Promise<Table> {
    const operation = operations[step.op];
    if (operation === undefined) {
      throw new Fault(`no such operation: ${step.op}`);
    }
    const values = this.#expand(step.args);
    const table = typeof values === "object" && values !== null ? (values as Table) : {};
    try {
      const answer = await operation(new Arguments(this, step, table, signal));
      return { answer: objectOf(answer) };
    } catch (error) {
      if (error instanceof Fault) {
        throw error;
      }
      return { error: errorOf(error) };
    }
  }

  #save(step: Step, body: Table): void {
    for (const [name, path] of Object.entries(step.save)) {
      this.saved.set(name, find(body["answer"], path));
    }
  }

  /** Puts saved values in the place of `${name}`. */
  #expand(value: Value): Value {
    if (typeof value === "string") {
      return value.replace(/\$\{([a-zA-Z0-9_.]+)\}/g, (found, name: string) => {
        if (!this.saved.has(name)) {
          throw new Fault(`nothing was saved as ${found}`);
        }
        return show(this.saved.get(name));
      });
    }
    if (Array.isArray(value)) {
      return value.map((inner) => this.#expand(inner));
    }
    if (typeof value === "object" && value !== null) {
      const entries = Object.entries(value);
      return Object.fromEntries(entries.map(([key, inner]) => [key, this.#expand(inner)]));
    }
    return value;
  }
}

function append(entries: Entry[], step: Step, body: Table): void {
  const { number, op, record } = step;
  const answer = body["answer"];
  if (silent.has(op) && record === undefined && answer !== undefined) {
    return;
  }
  if (record === undefined || answer === undefined) {
    entries.push({ number, op, body });
  } else if (record.length > 0) {
    entries.push({ number, op, body: { answer: pick(answer, record) } });
  }
}
