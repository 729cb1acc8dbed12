/**
 * A sub-agent's worker. The supervisor starts it for a role of its settings:
 *
 *     [roles.counter]
 *     worker = "command"
 *     command = ["node", "/path/to/worker.js"]
 */

import { runWorker } from "@pinfold/client";

await runWorker(async (turn, agent) => {
  await agent.status("working", "counting");
  // The prompt is no part of the script, so nothing in it is obeyed.
  const answer = await agent.run("wc -w", { input: turn.text });
  return `The prompt, in lines of a result:\n${answer.text}`;
});
