/** The log: everything that has happened, and what happens, over restarts of the supervisor. */

import { Pinfold, PinfoldError } from "@pinfold/client";

await using pinfold = Pinfold.connect();
const { oldestRevision } = await pinfold.info();

try {
  // Without `stopAtEnd` it goes on for ever, or until the `signal` of its options.
  for await (const event of pinfold.events({ startRevision: oldestRevision, stopAtEnd: true })) {
    console.log(`${event.revision} ${event.name} ${event.agentId} ${event.callId}`);
  }
} catch (error) {
  if (error instanceof PinfoldError && error.reason === "REVISION_COMPACTED") {
    console.error(`begin at ${error.metadata["oldest_revision"]}`);
  }
  throw error;
}
