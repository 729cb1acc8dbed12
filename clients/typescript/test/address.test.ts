import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import * as net from "node:net";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";

import { resolveAddress, socketTarget } from "../src/address.js";
import { Pinfold } from "../src/index.js";

const NAMES = ["PINFOLD_ADDRESS", "PINFOLD_STATE", "XDG_STATE_HOME", "PINFOLD_TOKEN"];

describe("addresses", () => {
  const saved: Record<string, string | undefined> = {};
  beforeEach(() => {
    for (const name of NAMES) {
      saved[name] = process.env[name];
      delete process.env[name];
    }
  });
  afterEach(() => {
    for (const name of NAMES) {
      if (saved[name] === undefined) {
        delete process.env[name];
      } else {
        process.env[name] = saved[name];
      }
    }
  });

  it("come from the options, then the environment, then the default", () => {
    assert.deepEqual(resolveAddress(), {
      socket: join(homedir(), ".local/state/pinfold/pinfold.sock"),
    });
    process.env["XDG_STATE_HOME"] = "/x";
    assert.deepEqual(resolveAddress(), { socket: "/x/pinfold/pinfold.sock" });
    process.env["PINFOLD_STATE"] = "/s";
    assert.deepEqual(resolveAddress(), { socket: "/s/pinfold.sock" });
    process.env["PINFOLD_ADDRESS"] = "unix:/a/b.sock";
    assert.deepEqual(resolveAddress(), { socket: "/a/b.sock" });
    assert.deepEqual(resolveAddress(undefined, "/t"), { socket: "/t/pinfold.sock" });
    assert.deepEqual(resolveAddress("host:1234", "/t"), { host: "host:1234" });
    assert.deepEqual(resolveAddress("unix:///c.sock"), { socket: "/c.sock" });
    assert.deepEqual(resolveAddress("./d.sock"), { socket: join(process.cwd(), "d.sock") });
  });

  it("that are none are refused", () => {
    assert.throws(() => resolveAddress("nonsense"), { reason: "INVALID_ADDRESS" });
  });

  it("keep a token from the clear", () => {
    assert.throws(() => Pinfold.connect({ address: "example.org:1", token: "t" }), {
      reason: "TOKEN_WITHOUT_TLS",
    });
    Pinfold.connect({ address: "127.0.0.1:1", token: "t" }).close();
    assert.throws(() => Pinfold.connect({ address: "h:1", tls: { ca: "/nowhere.pem" } }), {
      reason: "TLS_FILE",
    });
  });

  it("may be longer than a socket address", async () => {
    const root = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
    const directory = join(root, "d".repeat(200));
    mkdirSync(directory);
    const path = join(directory, "pinfold.sock");
    const short = socketTarget(path);
    const server = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(short.target.slice(5), resolve));
    const client = Pinfold.connect({ state: directory, patienceMs: 0 });
    // There is a listener, which speaks no HTTP/2: the failure is not "no such file".
    const failure = await client.info().catch((error) => error);
    assert.doesNotMatch(String(failure.cause?.message), /ENOENT|ENAMETOOLONG|EINVAL/);
    client.close();
    await new Promise((resolve) => server.close(resolve));
    short.release();
    rmSync(root, { recursive: true });
  });
});
