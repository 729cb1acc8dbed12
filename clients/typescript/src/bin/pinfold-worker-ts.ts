#!/usr/bin/env node
/**
 * A sub-agent's worker that needs no model: it follows the script in its prompt, as the built-in
 * role `scripted` does (docs/workers.md has the directives). For a role of the settings:
 *
 *     [roles.ts]
 *     worker = "command"
 *     command = ["pinfold-worker-ts"]
 */

import { runWorker } from "../worker.js";
import { Follower } from "./follower.js";

const follower = new Follower();
try {
  await runWorker((turn, agent) => follower.turn(turn, agent));
} catch (error) {
  process.stderr.write(
    `pinfold-worker-ts: ${error instanceof Error ? error.message : String(error)}\n`,
  );
  process.exitCode = 1;
}
