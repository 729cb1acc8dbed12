import { Pinfold } from "../src/index.js";
import type { Operation } from "./operations.js";

export const toolOperations: Record<string, Operation> = {
  list_tools(a) {
    if (a.has("agent")) {
      return a.agent().listTools({ signal: a.signal });
    }
    const surface = a.text("surface") as "tau" | "tasks" | "both" | "";
    return a.client().listTools(surface || "both", { signal: a.signal });
  },

  call_tool: (a) =>
    a.agent().callTool(a.text("name"), a.text("arguments"), {
      toolCallId: a.text("call"),
      signal: a.signal,
    }),

  read_task: (a) =>
    a.agent().taskOutput(a.text("task"), {
      readId: a.text("read_id"),
      wait: a.flag("wait"),
      timeoutMs: a.ms("timeout"),
      signal: a.signal,
    }),

  async list_tasks(a) {
    const tasks = await a.agent().taskList({ liveOnly: a.flag("live_only"), signal: a.signal });
    return { tasks };
  },

  kill_task: (a) =>
    a.agent().taskKill(a.text("task"), { reason: a.text("reason"), signal: a.signal }),

  info: (a) => a.client().info({ signal: a.signal }),

  async drain(a) {
    return { live_calls: await a.client().drain({ signal: a.signal }) };
  },

  /** Keeps the secret out of the transcript. */
  async create_token(a) {
    const { token, tokenId } = await a.client().createToken({
      agentId: a.has("agent") ? a.agent().agentId : "",
      label: a.text("label"),
      validForMs: a.ms("valid_for"),
      signal: a.signal,
    });
    a.run.saved.set(a.text("as"), token);
    return { token_id: tokenId };
  },

  async list_tokens(a) {
    return { tokens: await a.client().listTokens({ signal: a.signal }) };
  },

  async revoke_token(a) {
    await a.client().revokeToken(a.text("token_id"), { signal: a.signal });
    return undefined;
  },

  /** Another client of the same supervisor, with a token of its own. */
  connect(a) {
    a.run.clients.set(a.text("as"), Pinfold.connect({ token: a.text("token") }));
    return undefined;
  },
};
