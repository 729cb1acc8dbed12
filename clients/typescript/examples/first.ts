/** A command in the foreground, one in the background, and its result, once. */

import { Pinfold } from "@pinfold/client";

await using pinfold = Pinfold.connect();
const agent = await pinfold.openAgent();

const greeting = await agent.run("echo hello; exit 3");
if (greeting.kind === "result") {
  console.log(`exit code ${greeting.exitCode}`);
}
console.log(greeting.text);

// Over 2 seconds it would go to the background by itself.
const build = await agent.run("sleep 1; echo built", { background: true });
console.log(build.text);

const { result } = await agent.waitExact(build.callId, { timeoutMs: 30_000 });
console.log(result?.text);

await agent.stop();
