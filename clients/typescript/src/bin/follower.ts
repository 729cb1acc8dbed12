import { setTimeout as sleep } from "node:timers/promises";

import type { Agent } from "../agent.js";
import { type Prompt, PromptKind } from "../gen/pinfold/v1/agent_pb.js";
import type { CallToolResponse } from "../gen/pinfold/v1/tool_service_pb.js";
import type { Turn } from "../turns.js";
import { TurnCancelled } from "../worker.js";
import { cut, indentation, numberOf, quoted, ScriptError } from "./script.js";

const FIELD = /\{(body|from|parent|self|out|wait|agent|body:(\w+))\}/g;
const LATER = "Received.";

/** Where the script stands; kept over turns. An answer ends the turn, `undefined` goes on. */
export class Follower {
  #lines: string[] | undefined;
  readonly #values = new Map<string, string>();
  readonly #calls: string[] = [];
  #onMessage = "";
  /** Messages that no `await_message` has taken. */
  readonly #arrivals: Prompt[] = [];

  async turn(turn: Turn, agent: Agent): Promise<string> {
    const lines = this.#begin(turn, agent);
    try {
      let answer = await this.#arrived(turn, agent, turn.prompts);
      while (answer === undefined && lines.length > 0) {
        answer = await this.#do(turn, agent, lines.shift() ?? "");
        answer ??= await this.#arrived(turn, agent, await take(agent));
      }
      return answer ?? LATER;
    } catch (error) {
      if (!(error instanceof ScriptError)) {
        throw error;
      }
      // The answer, so that the author of the script sees it.
      lines.length = 0;
      return `error: ${error.message}`;
    }
  }

  #begin(turn: Turn, agent: Agent): string[] {
    if (this.#lines === undefined) {
      const start = turn.prompts.find(({ kind }) => kind === PromptKind.START);
      const script = start === undefined ? turn.text : cut(start.text, "\n\n")[1];
      this.#lines = script.split("\n").filter((line) => line.trim() !== "");
      this.#values.set("parent", start?.fromAgentId ?? "");
      this.#values.set("self", agent.agentId);
    }
    return this.#lines;
  }

  async #arrived(
    turn: Turn,
    agent: Agent,
    prompts: readonly Prompt[],
  ): Promise<string | undefined> {
    for (const prompt of prompts) {
      if (prompt.kind !== PromptKind.MESSAGE) {
        continue;
      }
      this.#arrivals.push(prompt);
      this.#about(prompt);
      if (this.#onMessage !== "") {
        const answer = await this.#do(turn, agent, this.#onMessage);
        if (answer !== undefined) {
          return answer;
        }
      }
    }
    return undefined;
  }

  async #do(turn: Turn, agent: Agent, line: string): Promise<string | undefined> {
    const [name, raw] = cut(line.trim(), " ");
    const rest = raw.trim();
    if (name === "on_message") {
      this.#onMessage = rest;
      return undefined;
    }
    const text = rest.replace(FIELD, (_, field: string, name?: string) => this.#value(field, name));
    switch (name) {
      case "final":
        this.#lines = [];
        return text;
      case "shell":
        await this.#shell(agent, text);
        break;
      case "wait":
        await this.#tool(agent, "wait", text ? { tool_call_id: this.#call(text) } : {});
        this.#values.set("wait", this.#values.get("out") ?? "");
        break;
      case "cancel":
        await this.#tool(agent, "cancel", { tool_call_id: this.#call(text) });
        break;
      case "await_message":
        return await this.#awaitMessage(turn, agent);
      case "message": {
        const [who, message] = cut(text, " ");
        const recipient = who === "parent" ? (this.#values.get("parent") ?? "") : who;
        await this.#tool(agent, "message", { recipient_id: recipient, message });
        break;
      }
      case "status": {
        const [state, title] = cut(text, " ");
        await this.#tool(agent, "status", { state, title });
        break;
      }
      case "agent":
        await this.#startAgent(agent, text);
        break;
      case "say":
        turn.draft += `${text}\n`;
        break;
      case "sleep":
        await sleep(numberOf(text) * 1000);
        break;
      default:
        throw new ScriptError(`not a directive: ${quoted(line.trim())}`);
    }
    return undefined;
  }

  async #tool(
    agent: Agent,
    name: string,
    args: Record<string, unknown>,
    toolCallId?: string,
  ): Promise<CallToolResponse> {
    const answer = await agent.callTool(name, args, { toolCallId });
    this.#values.set("out", answer.text);
    return answer;
  }

  async #shell(agent: Agent, command: string): Promise<void> {
    const callId = `${agent.agentId}-call-${this.#calls.length + 1}`;
    this.#calls.push(callId);
    await this.#tool(agent, "shell", { command }, callId);
  }

  #call(text: string): string {
    const callId = /^\d+$/.test(text) ? this.#calls[Number(text) - 1] : undefined;
    if (callId === undefined) {
      throw new ScriptError(`no such shell call: ${quoted(text)} of ${this.#calls.length}`);
    }
    return callId;
  }

  async #awaitMessage(turn: Turn, agent: Agent): Promise<string | undefined> {
    let message = this.#arrivals.shift();
    while (message === undefined) {
      await agent.waitForInput();
      const answer = await this.#arrived(turn, agent, await take(agent));
      if (answer !== undefined) {
        return answer;
      }
      message = this.#arrivals.shift();
    }
    this.#about(message);
    return undefined;
  }

  #about(message: Prompt): void {
    this.#values.set("body", message.body);
    this.#values.set("from", message.fromAgentId);
  }

  /** Of `{field}`, or of `{body:name}`: the word after `name=` in the last message. */
  #value(field: string, name: string | undefined): string {
    if (name === undefined) {
      return this.#values.get(field) ?? "";
    }
    const body = this.#values.get("body") ?? "";
    return new RegExp(`\\b${name}=(\\S+)`).exec(body)?.[1] ?? "";
  }

  /** `agent [call] [ROLE]`: the indented lines that follow are its script. */
  async #startAgent(agent: Agent, text: string): Promise<void> {
    const words = text.split(/\s+/).filter((word) => word !== "");
    const inner: string[] = [];
    while (this.#lines?.[0] !== undefined && indentation(this.#lines[0]) > 0) {
      inner.push(this.#lines.shift() ?? "");
    }
    const width = Math.min(...inner.map(indentation));
    const args: Record<string, unknown> = {
      prompt: inner.map((line) => line.slice(width)).join("\n") || "final done",
    };
    if (words[0] === "call") {
      args["mode"] = words.shift();
    }
    if (words[0] !== undefined) {
      args["role"] = words[0];
    }
    const answer = await this.#tool(agent, "agent_start", args);
    const subAgent = answer.facts.case === "agentStart" ? answer.facts.value.subAgentId : "";
    this.#values.set("agent", subAgent);
  }
}

async function take(agent: Agent): Promise<readonly Prompt[]> {
  const { prompts, turnCancelled } = await agent.takePrompts();
  if (turnCancelled) {
    throw new TurnCancelled();
  }
  return prompts;
}
