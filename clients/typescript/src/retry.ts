/** Repeats after a lost connection. Every repeated request carries an id, so it is safe. */

import { setTimeout as sleep } from "node:timers/promises";

import type { PinfoldError } from "./errors.js";

const FIRST_MS = 50;
const LONGEST_MS = 1000;
const FACTOR = 1.7;

/**
 * How long the supervisor has been out of reach, and whether to go on trying: `patienceMs` from
 * the first failure. Any success ends the outage.
 */
export class Outage {
  readonly #patienceMs: number;
  #since: number | undefined;
  #delay = FIRST_MS;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  get repeated(): boolean {
    return this.#since !== undefined;
  }

  /** Something was received. */
  over(): void {
    this.#since = undefined;
    this.#delay = FIRST_MS;
  }

  /** Sleeps before the next attempt, or throws `error`. */
  async bear(error: PinfoldError, started: number, signal?: AbortSignal): Promise<void> {
    if (!isLostConnection(error)) {
      throw error;
    }
    const now = performance.now();
    // An attempt that was parked for a while had a connection until just now.
    if (this.#since === undefined || now - started > 2 * LONGEST_MS) {
      this.#since = now;
      this.#delay = FIRST_MS;
    }
    const left = this.#since + this.#patienceMs - now;
    if (left <= 0) {
      throw error;
    }
    const delay = error.retryAfterMs ?? this.#delay;
    this.#delay = Math.min(this.#delay * FACTOR, LONGEST_MS);
    const jittered = delay * (0.5 + Math.random() / 2);
    await sleep(Math.min(jittered, left), undefined, signal && { signal }).catch(() => {
      throw signal?.reason;
    });
  }
}

/** Nothing was decided, as far as is known: the same request may be sent again. */
export function isLostConnection(error: PinfoldError): boolean {
  if (error.code === "UNAVAILABLE") {
    // With a reason it is the supervisor's own answer, such as "draining".
    return error.reason === "" || error.retryAfterMs !== undefined;
  }
  // A server that goes down ends RPCs as CANCELLED. A cancel of our own never comes here.
  return error.code === "CANCELLED" && error.reason === "";
}
