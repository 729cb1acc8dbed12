/** The generated messages and services, for what the client does not wrap. */

export * from "./gen/pinfold/v1/agent_pb.js";
export * from "./gen/pinfold/v1/agent_service_pb.js";
export * from "./gen/pinfold/v1/call_pb.js";
export * from "./gen/pinfold/v1/call_service_pb.js";
export * from "./gen/pinfold/v1/supervisor_service_pb.js";
export * from "./gen/pinfold/v1/task_service_pb.js";
export * from "./gen/pinfold/v1/tool_service_pb.js";
export * from "./gen/pinfold/v1/watch_service_pb.js";
