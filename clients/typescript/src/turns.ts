import type { Abortable } from "./connection.js";
import { PinfoldError } from "./errors.js";
import { type Agent as AgentInfo, type Prompt, ReportedState } from "./gen/pinfold/v1/agent_pb.js";
import {
  type SendMessageResponse,
  type StartAgentResponse,
  StartMode,
  type StopAgentResponse,
} from "./gen/pinfold/v1/agent_service_pb.js";
import { Tasks } from "./tasks.js";
import { duration, newId, present } from "./values.js";

/** A turn that was begun, or taken over (`resumed`), with the prompts that make it. */
export interface Turn {
  readonly turnId: string;
  readonly prompts: readonly Prompt[];
  readonly deliveryId: string;
  readonly resumed: boolean;
  /** All prompts as one text. */
  readonly text: string;
  /**
   * How far the answer has come. In a worker, what is here when its agent is ended is kept as the
   * partial text of the call that it is.
   */
  draft: string;
}

/** Prompts that arrived during the turn. `turnCancelled`: a user ended it. */
export interface Taken {
  readonly prompts: readonly Prompt[];
  readonly deliveryId: string;
  readonly turnCancelled: boolean;
}

export interface PromptOptions extends Abortable {
  /** Rides along with the next activating prompt, and wakes nobody. */
  passive?: boolean | undefined;
  requestId?: string | undefined;
}

export interface EndTurnOptions extends Abortable {
  /** It is only how far the answer came, and means something only if the agent is being ended. */
  draft?: boolean | undefined;
}

export interface StartAgentOptions extends Abortable {
  /** Default: the supervisor's default role. */
  role?: string | undefined;
  /**
   * "watch", the default: the sub-agent lives on and is watched. "call": it is a background call,
   * and its first answer is the result.
   */
  mode?: "watch" | "call" | undefined;
  callId?: string | undefined;
}

export type Status = "working" | "waiting" | "blocked" | "done";

const REPORTED_STATES: Record<Status, ReportedState> = {
  working: ReportedState.WORKING,
  waiting: ReportedState.WAITING,
  blocked: ReportedState.BLOCKED,
  done: ReportedState.DONE,
};

/**
 * An agent as its driver sees it: turns, prompts, sub-agents, messages, status.
 *
 * Prompts are delivered again until they are acknowledged; each step here acknowledges the last
 * delivery that this handle was given.
 */
export abstract class Turns extends Tasks {
  /** Waits for activating input and begins a turn with it. `undefined` when the time is up. */
  async nextTurn({
    timeoutMs,
    signal,
  }: Abortable & { timeoutMs?: number | undefined } = {}): Promise<Turn | undefined> {
    const request = present({
      agentId: this.agentId,
      acknowledgeDeliveryId: this.deliveryId,
      timeout: duration(timeoutMs),
    });
    const { turnId, prompts, deliveryId, resumed } = await this.connection.unary(
      (call) => this.connection.agents.nextTurn(request, call),
      { parks: true, signal },
    );
    if (!turnId) {
      return undefined;
    }
    this.deliveryId = deliveryId;
    const text = prompts.map((prompt) => prompt.text).join("\n\n");
    return { turnId, prompts, deliveryId, resumed, text, draft: "" };
  }

  /** What has arrived during the turn, at once. */
  async takePrompts({ signal }: Abortable = {}): Promise<Taken> {
    const request = { agentId: this.agentId, acknowledgeDeliveryId: this.deliveryId };
    const { prompts, deliveryId, turnCancelled } = await this.connection.unary(
      (call) => this.connection.agents.takePrompts(request, call),
      { signal },
    );
    this.deliveryId = deliveryId;
    return { prompts, deliveryId, turnCancelled };
  }

  /** Ends the turn with the agent's answer, which its watchers get. */
  async endTurn(turnId: string, answer: string, options: EndTurnOptions = {}): Promise<void> {
    const { draft = false, signal } = options;
    const request = {
      agentId: this.agentId,
      turnId,
      answer,
      acknowledgeDeliveryId: this.deliveryId,
      draft,
    };
    await this.connection.unary((call) => this.connection.agents.endTurn(request, call), {
      signal,
    });
    this.deliveryId = "";
  }

  /** A user's prompt for the agent. Returns its prompt id once it is stored. */
  async sendPrompt(text: string, options: PromptOptions = {}): Promise<string> {
    const { passive = false, requestId, signal } = options;
    const request = {
      agentId: this.agentId,
      requestId: requestId || newId("req"),
      text,
      passive,
    };
    const { promptId } = await this.connection.unary(
      (call) => this.connection.agents.sendPrompt(request, call),
      { signal },
    );
    return promptId;
  }

  /** As a user: cancels the turn and its calls. Returns how many calls. */
  async cancelTurn({
    reason = "",
    signal,
  }: Abortable & { reason?: string | undefined } = {}): Promise<number> {
    const request = { agentId: this.agentId, reason };
    const { cancelledCalls } = await this.connection.unary(
      (call) => this.connection.agents.cancelTurn(request, call),
      { signal },
    );
    return cancelledCalls;
  }

  /** Starts a sub-agent and returns at once. */
  async startAgent(prompt: string, options: StartAgentOptions = {}): Promise<StartAgentResponse> {
    const { role = "", mode = "watch", callId, signal } = options;
    const request = {
      agentId: this.agentId,
      callId: callId || newId("call"),
      prompt,
      role,
      mode: mode === "call" ? StartMode.CALL : StartMode.WATCH,
    };
    return await this.connection.unary((call) => this.connection.agents.startAgent(request, call), {
      signal,
    });
  }

  /** A message to another agent. Success means stored. */
  async message(
    recipientId: string,
    message: string,
    { requestId, signal }: Abortable & { requestId?: string | undefined } = {},
  ): Promise<SendMessageResponse> {
    const request = {
      agentId: this.agentId,
      requestId: requestId || newId("req"),
      recipientId,
      message,
    };
    return await this.connection.unary(
      (call) => this.connection.agents.sendMessage(request, call),
      { signal },
    );
  }

  /** Turns the watch of another agent on or off. Returns what a model reads. */
  async watchAgent(
    agentId: string,
    { enable = true, signal }: Abortable & { enable?: boolean | undefined } = {},
  ): Promise<string> {
    const request = { agentId: this.agentId, watchedAgentId: agentId, enable };
    const { text } = await this.connection.unary(
      (call) => this.connection.agents.watchAgent(request, call),
      { signal },
    );
    return text;
  }

  /** Reports what the agent is at, with a title of one line. Returns what a model reads. */
  async status(state: Status, title: string, { signal }: Abortable = {}): Promise<string> {
    const request = { agentId: this.agentId, status: { state: REPORTED_STATES[state], title } };
    const { text } = await this.connection.unary(
      (call) => this.connection.agents.reportStatus(request, call),
      { signal },
    );
    return text;
  }

  /** The agent as it stands. */
  async info({ signal }: Abortable = {}): Promise<AgentInfo> {
    const { agent } = await this.connection.unary(
      (call) => this.connection.agents.getAgent({ agentId: this.agentId }, call),
      { signal },
    );
    if (agent === undefined) {
      throw new PinfoldError(`an answer without agent ${this.agentId}`, { code: "INTERNAL" });
    }
    return agent;
  }

  /** Ends the agent and everything below it; returns when nothing of it is left. */
  async stop({
    reason = "",
    graceMs,
    signal,
  }: Abortable & {
    reason?: string | undefined;
    graceMs?: number | undefined;
  } = {}): Promise<StopAgentResponse> {
    const request = present({ agentId: this.agentId, reason, grace: duration(graceMs) });
    return await this.connection.unary((call) => this.connection.agents.stopAgent(request, call), {
      parks: true,
      signal,
    });
  }
}
