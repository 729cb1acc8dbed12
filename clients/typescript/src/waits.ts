import type { MessageInitShape } from "@bufbuild/protobuf";

import { WaitAnswer } from "./answers.js";
import { Calls } from "./calls.js";
import type { Abortable } from "./connection.js";
import { SetMode, type WaitRequestSchema } from "./gen/pinfold/v1/call_service_pb.js";
import { Outage } from "./retry.js";
import { duration, newId, present } from "./values.js";

export interface WaitOptions extends Abortable {
  /** Its end is an answer (`timedOut`); default no limit. */
  timeoutMs?: number | undefined;
  /** Names the wait; one is generated. The same id again gets the same answer. */
  waitId?: string | undefined;
}

type Form = NonNullable<MessageInitShape<typeof WaitRequestSchema>["form"]>;

/**
 * An agent's waits. Each result is consumed at most once.
 *
 * Every wait has an id and is sent again after a lost connection. Aborting one consumes nothing.
 * NOT_FOUND: an unknown call. FAILED_PRECONDITION: its result was consumed already, or another
 * waits for it.
 */
export abstract class Waits extends Calls {
  /** Waits for one call and consumes its result. */
  async waitExact(callId: string, options: WaitOptions = {}): Promise<WaitAnswer> {
    return await this.#wait({ case: "exact", value: { callId } }, options);
  }

  /** Waits for all of 1 to 64 calls; consumes all results together, or none. */
  async waitAll(callIds: readonly string[], options: WaitOptions = {}): Promise<WaitAnswer> {
    const value = { callIds: [...callIds], mode: SetMode.ALL };
    return await this.#wait({ case: "set", value }, options);
  }

  /** Waits for the first of 1 to 64 calls; consumes that result only. */
  async waitAny(callIds: readonly string[], options: WaitOptions = {}): Promise<WaitAnswer> {
    const value = { callIds: [...callIds], mode: SetMode.ANY };
    return await this.#wait({ case: "set", value }, options);
  }

  /**
   * Takes the oldest result that nobody has consumed, or the next one.
   *
   * FAILED_PRECONDITION when nothing runs in the background and nothing is completed.
   */
  async waitAnyBackground(options: WaitOptions = {}): Promise<WaitAnswer> {
    return await this.#wait({ case: "bare", value: {} }, options);
  }

  /** Waits for activating input; consumes neither input nor results. */
  async waitForInput(options: WaitOptions = {}): Promise<WaitAnswer> {
    return await this.#wait({ case: "input", value: {} }, options);
  }

  async #wait(form: Form, { timeoutMs, waitId, signal }: WaitOptions): Promise<WaitAnswer> {
    const id = waitId || newId("wait");
    const begun = performance.now();
    const outage = new Outage(this.connection.patienceMs);
    for (;;) {
      const started = performance.now();
      // A repeat has what is left of the time.
      const left =
        timeoutMs === undefined || !outage.repeated
          ? timeoutMs
          : Math.max(0, begun + timeoutMs - started);
      const request = present({
        agentId: this.agentId,
        waitId: id,
        form,
        timeout: duration(left),
      });
      try {
        return new WaitAnswer(
          await this.connection.attempt((call) => this.connection.calls.wait(request, call), {
            signal,
          }),
        );
      } catch (failure) {
        await this.connection.bear(outage, failure, started, signal);
      }
    }
  }
}
