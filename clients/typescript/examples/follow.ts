/** Output as it comes, a cancel, and what ending the command took. */

import { Pinfold } from "@pinfold/client";

await using pinfold = Pinfold.connect();
const agent = await pinfold.openAgent();

const { callId } = await agent.start("while :; do date; sleep 0.2; done");
setTimeout(() => agent.cancel(callId, { reason: "seen enough" }).catch(console.error), 1000);

for await (const chunk of agent.output(callId)) {
  process.stdout.write(chunk.data);
}

const { receipt } = await agent.ended(callId);
console.log(`${receipt?.ended} processes ended, ${receipt?.survivors.length} left`);

await agent.stop();
