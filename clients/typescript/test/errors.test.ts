import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import { PinfoldError } from "../src/index.js";
import { CallService } from "../src/v1.js";
import { Code, Fake, refusal } from "./fake.js";

describe("errors", () => {
  it("carry the code, the reason and its details", async () => {
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        getCall: ({ callId }) => {
          throw refusal(Code.NotFound, "CALL_UNKNOWN", `unknown tool call \`${callId}\` — ü`, {
            call_id: callId,
          });
        },
      }),
    );
    const failure = await fake
      .client()
      .agent("a")
      .get("nope")
      .catch((error) => error);
    assert.ok(failure instanceof PinfoldError);
    assert.equal(failure.code, "NOT_FOUND");
    assert.equal(failure.reason, "CALL_UNKNOWN");
    assert.equal(failure.message, "unknown tool call `nope` — ü");
    assert.deepEqual(failure.metadata, { call_id: "nope" });
    assert.equal(failure.retryAfterMs, undefined);
  });

  it("of a refusal with a reason are not repeated", async () => {
    let asked = 0;
    await using fake = await Fake.start((router) =>
      router.service(CallService, {
        runShell: () => {
          asked += 1;
          throw refusal(Code.Unavailable, "DRAINING", "the supervisor is draining");
        },
      }),
    );
    await assert.rejects(fake.client().agent("a").run("true"), { reason: "DRAINING" });
    assert.equal(asked, 1);
  });

  it("say where nobody is, when patience ends", async () => {
    await using fake = await Fake.start(() => {});
    await fake.crash();
    const started = performance.now();
    await assert.rejects(fake.client({ patienceMs: 300 }).info(), (error: PinfoldError) => {
      assert.equal(error.code, "UNAVAILABLE");
      assert.equal(error.reason, "");
      assert.match(error.message, /^no supervisor at unix:.*pinfold serve/);
      return true;
    });
    const took = performance.now() - started;
    assert.ok(took >= 290 && took < 2000, `${took} ms`);
  });

  it("tell that the client is closed", async () => {
    await using fake = await Fake.start(() => {});
    const client = fake.client();
    client.close();
    await assert.rejects(client.info(), { code: "UNAVAILABLE", reason: "CLIENT_CLOSED" });
  });

  it("have the reasons of the table", () => {
    const words = (text: string, pattern: RegExp) =>
      [...text.matchAll(pattern)].map(([, word]) => word).sort();
    const table = words(readFileSync("../../docs/errors.md", "utf8"), /^\| `([A-Z_]+)`/gm);
    const [ofSupervisor = ""] = readFileSync("src/reasons.ts", "utf8").split("// Of this client.");
    assert.deepEqual(words(ofSupervisor, /^ {2}\| "([A-Z_]+)"/gm), table);
  });
});
