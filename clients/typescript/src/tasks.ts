import type { Abortable } from "./connection.js";
import type { KillTaskResponse, ReadTaskResponse, Task } from "./gen/pinfold/v1/task_service_pb.js";
import type { CallToolResponse, ListToolsResponse } from "./gen/pinfold/v1/tool_service_pb.js";
import { allTasks, type ListOptions } from "./lists.js";
import { duration, newId, present } from "./values.js";
import { Waits } from "./waits.js";

export interface TaskOutputOptions extends Abortable {
  /** Wait for the end of the task first. */
  wait?: boolean | undefined;
  /** For `wait`; default 30 seconds. */
  timeoutMs?: number | undefined;
  /** Names the read; one is generated. The same id again gets the same bytes. */
  readId?: string | undefined;
}

/** An agent's calls seen as tasks, and its tools as a model calls them. */
export abstract class Tasks extends Waits {
  /**
   * The output since the last read, and the status. With `wait`, at the end of the task or of
   * the time, whichever is first.
   */
  async taskOutput(taskId: string, options: TaskOutputOptions = {}): Promise<ReadTaskResponse> {
    const { wait = false, timeoutMs, readId, signal } = options;
    const request = present({
      agentId: this.agentId,
      taskId,
      readId: readId || newId("read"),
      wait,
      timeout: duration(timeoutMs),
    });
    return await this.connection.unary((call) => this.connection.tasks.readTask(request, call), {
      parks: wait,
      signal,
    });
  }

  /** The agent's tasks in start order. */
  async taskList(options: ListOptions = {}): Promise<Task[]> {
    return await allTasks(this.connection, this.agentId, options);
  }

  /** Asks for the end of a task; `requested` is false when it had finished already. */
  async taskKill(
    taskId: string,
    { reason = "", signal }: Abortable & { reason?: string | undefined } = {},
  ): Promise<KillTaskResponse> {
    const request = { agentId: this.agentId, taskId, reason };
    return await this.connection.unary((call) => this.connection.tasks.killTask(request, call), {
      signal,
    });
  }

  /** The tools of the agent's surface, and a guidance section for a system prompt. */
  async listTools({ signal }: Abortable = {}): Promise<ListToolsResponse> {
    const request = { agentId: this.agentId };
    return await this.connection.unary((call) => this.connection.tools.listTools(request, call), {
      signal,
    });
  }

  /**
   * A model's call as it is: arguments as JSON text (or a value that becomes it), text back.
   *
   * What is wrong with the model's arguments is an answer of kind ERROR for the model to read,
   * never an exception.
   */
  async callTool(
    name: string,
    args: string | Readonly<Record<string, unknown>> = "{}",
    { toolCallId, signal }: Abortable & { toolCallId?: string | undefined } = {},
  ): Promise<CallToolResponse> {
    const request = {
      agentId: this.agentId,
      toolCallId: toolCallId || newId("call"),
      name,
      argumentsJson: typeof args === "string" ? args : JSON.stringify(args),
    };
    return await this.connection.unary((call) => this.connection.tools.callTool(request, call), {
      parks: true,
      signal,
    });
  }
}
