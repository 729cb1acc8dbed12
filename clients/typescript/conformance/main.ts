/**
 * Runs the conformance scenarios through the TypeScript client and writes one transcript for
 * each. What scenarios and transcripts are is said in tests/conformance/README.md.
 */

import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { Run } from "./run.js";
import { load, type Scenario } from "./scenario.js";
import { transcript } from "./transcript.js";

// A scenario that hangs is a failure, not a hang.
const LIMIT_MS = 120_000;

async function runOne(scenario: Scenario): Promise<string> {
  // Of one length in all languages: labels with the name in them are cut at a width.
  const directory = join(tmpdir(), `conformance-${randomBytes(4).toString("hex")}`);
  mkdirSync(directory, { mode: 0o700 });
  try {
    const run = await Run.begin(scenario, directory, AbortSignal.timeout(LIMIT_MS));
    try {
      return transcript(scenario, directory, await run.steps());
    } finally {
      await run.close();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    scenarios: { type: "string", default: "." },
    out: { type: "string", default: "" },
    profile: { type: "string", default: "default" },
  },
});

const files = readdirSync(values.scenarios).filter((name) => name.endsWith(".yaml"));
for (const file of files.sort()) {
  const scenario = load(join(values.scenarios, file));
  const chosen = positionals.length === 0 || positionals.includes(scenario.name);
  if (!chosen || scenario.profile !== values.profile) {
    continue;
  }
  try {
    const text = await runOne(scenario);
    if (values.out === "") {
      process.stdout.write(text);
    } else {
      writeFileSync(join(values.out, `${scenario.name}.json`), text);
    }
  } catch (error) {
    process.stderr.write(`${scenario.name}: ${(error as Error).message}\n`);
    process.exitCode = 1;
    break;
  }
}

// A supervisor that hangs may keep a connection from closing.
setTimeout(() => process.exit(), 5000).unref();
