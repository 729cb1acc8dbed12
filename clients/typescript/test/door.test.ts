import assert from "node:assert/strict";
import * as net from "node:net";
import { join } from "node:path";
import { describe, it } from "node:test";

import { makeCertificates, noSupervisor, Supervisor } from "./supervisor.js";

async function freePort(): Promise<number> {
  const server = net.createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as net.AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe("the door", { skip: noSupervisor }, () => {
  it("TLS with certificates on both sides, and a token", async () => {
    const port = await freePort();
    await using supervisor = await Supervisor.start((state) => {
      makeCertificates(state);
      const path = (name: string) => JSON.stringify(join(state, name));
      return [
        `address = "127.0.0.1:${port}"`,
        "[tls]",
        `certificate = ${path("server.pem")}`,
        `key = ${path("server.key")}`,
        `client_ca = ${path("ca.pem")}`,
      ].join("\n");
    });
    const file = (name: string) => join(supervisor.state, name);
    const { token } = await supervisor.client().createToken({ label: "test" });
    const own = { certificate: file("client.pem"), key: file("client.key") };
    const remote = { state: undefined, address: `127.0.0.1:${port}`, patienceMs: 0 };

    const tls = { ca: file("ca.pem"), ...own };
    const client = supervisor.client({ ...remote, token, tls });
    const agent = await client.openAgent("remote");
    const answer = await agent.run("echo far");
    assert.match(answer.text, /out far/);

    await assert.rejects(supervisor.client({ ...remote, token: "wrong", tls }).info(), {
      code: "UNAUTHENTICATED",
    });
    await assert.rejects(supervisor.client({ ...remote, token, tls: own }).info(), {
      code: "UNAVAILABLE",
      reason: "TLS_HANDSHAKE",
    });
    await assert.rejects(supervisor.client({ ...remote, token, tls: { ca: tls.ca } }).info(), {
      code: "UNAVAILABLE",
    });
    const named = { ...tls, serverName: "pinfold.test" };
    await supervisor.client({ ...remote, token, tls: named }).info();
  });

  it("an agent's token reaches its own and nothing else", async () => {
    await using supervisor = await Supervisor.start();
    const operator = supervisor.client();
    const mine = await operator.openAgent("mine");
    const theirs = await operator.openAgent("theirs");
    const { callId } = await theirs.run("true");

    const client = supervisor.client({ token: mine.token });
    await client.agent("mine").run("true");
    await assert.rejects(client.agent("theirs").get(callId), { code: "NOT_FOUND" });
    await assert.rejects(client.createToken(), { code: "PERMISSION_DENIED" });
    assert.deepEqual(
      (await client.listAgents()).map(({ agentId }) => agentId),
      ["mine"],
    );

    const { token, tokenId } = await operator.createToken({ agentId: "mine", validForMs: 60_000 });
    const made = supervisor.client({ token });
    await made.agent("mine").info();
    assert.ok((await operator.listTokens()).some((listed) => listed.tokenId === tokenId));
    await operator.revokeToken(tokenId);
    await assert.rejects(made.agent("mine").info(), { code: "UNAUTHENTICATED" });
  });
});
