import type { OpenAgentOptions, Status } from "../src/index.js";
import type { Arguments } from "./arguments.js";
import type { Operation } from "./operations.js";

const SURFACES = ["tau", "tasks", "none"] as const;

function surface(a: Arguments): OpenAgentOptions["surface"] {
  const name = a.text("surface");
  return name === ""
    ? undefined
    : (SURFACES.find((known) => known === name) ?? a.wrong(`no surface "${name}"`));
}

export const agentOperations: Record<string, Operation> = {
  async open_agent(a) {
    const agent = await a.client().openAgent(a.text("id"), {
      surface: surface(a),
      label: a.text("label"),
      cwd: a.bytes("cwd"),
      env: a.table("env"),
      maxRunningCalls: a.number("max_running_calls"),
      maxActiveTasks: a.number("max_active_tasks"),
      hiddenTools: a.texts("hidden_tools"),
      signal: a.signal,
    });
    a.run.keep(a.text("as"), agent, true);
    return { agent_id: agent.agentId };
  },

  attach_agent(a) {
    a.run.keep(a.text("as"), a.client().agent(a.text("id")), false);
    return undefined;
  },

  get_agent: (a) => a.agent().info({ signal: a.signal }),

  async list_agents(a) {
    const agents = await a.client().listAgents({
      liveOnly: a.flag("live_only"),
      parentId: a.text("parent"),
      signal: a.signal,
    });
    return { agents };
  },

  stop_agent: (a) =>
    a.agent().stop({ reason: a.text("reason"), graceMs: a.ms("grace"), signal: a.signal }),

  start_agent: (a) =>
    a.agent().startAgent(a.text("prompt"), {
      role: a.text("role"),
      mode: a.text("mode") === "call" ? "call" : "watch",
      callId: a.text("call"),
      signal: a.signal,
    }),

  async next_turn(a) {
    const turn = await a.agent().nextTurn({ timeoutMs: a.ms("timeout"), signal: a.signal });
    return (
      turn && {
        turn_id: turn.turnId,
        prompts: turn.prompts,
        delivery_id: turn.deliveryId,
        resumed: turn.resumed,
      }
    );
  },

  async take_prompts(a) {
    const taken = await a.agent().takePrompts({ signal: a.signal });
    return {
      prompts: taken.prompts,
      delivery_id: taken.deliveryId,
      turn_cancelled: taken.turnCancelled,
    };
  },

  async end_turn(a) {
    await a.agent().endTurn(a.text("turn"), a.text("answer"), { signal: a.signal });
    return undefined;
  },

  async cancel_turn(a) {
    const cancelled = await a.agent().cancelTurn({ reason: a.text("reason"), signal: a.signal });
    return { cancelled_calls: cancelled };
  },

  async send_prompt(a) {
    const promptId = await a.agent().sendPrompt(a.text("text"), {
      passive: a.flag("passive"),
      requestId: a.text("request_id"),
      signal: a.signal,
    });
    return { prompt_id: promptId };
  },

  send_message: (a) =>
    a.agent().message(a.text("to"), a.text("message"), {
      requestId: a.text("request_id"),
      signal: a.signal,
    }),

  async watch_agent(a) {
    const enable = !a.has("enable") || a.flag("enable");
    const text = await a.agent().watchAgent(a.text("watched"), { enable, signal: a.signal });
    return { text };
  },

  async status(a) {
    const state = a.text("state") as Status;
    return { text: await a.agent().status(state, a.text("title"), { signal: a.signal }) };
  },
};
