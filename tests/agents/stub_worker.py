"""A worker of a sub-agent in plain gRPC: the generated stubs and nothing else of ours.

What it does is in its prompt, as JSON: rounds of tool calls, each made in parallel as a model
makes them, then an answer. A `wait` without arguments stands for a call id as `"$0"`: the id
of the first call. It reports to its parent what each wait has answered, and each message that
it is given.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from pinfold.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    tool_service_pb2,
    tool_service_pb2_grpc,
)

AGENT = os.environ["PINFOLD_AGENT_ID"]
RIGHTS = (("authorization", f"Bearer {os.environ['PINFOLD_TOKEN']}"),)


class StubWorker:
    def __init__(self, channel: grpc.Channel) -> None:
        self.agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.tools = tool_service_pb2_grpc.ToolServiceStub(channel)
        self.delivery = ""
        self.parent = ""
        self.calls = 0

    def serve(self) -> None:
        while True:
            turn = self.agents.NextTurn(
                agent_service_pb2.NextTurnRequest(
                    agent_id=AGENT, acknowledge_delivery_id=self.delivery
                ),
                metadata=RIGHTS,
            )
            self.delivery = turn.delivery_id
            answer = self.work(list(turn.prompts))
            self.agents.EndTurn(
                agent_service_pb2.EndTurnRequest(
                    agent_id=AGENT,
                    turn_id=turn.turn_id,
                    answer=answer,
                    acknowledge_delivery_id=self.delivery,
                ),
                metadata=RIGHTS,
            )
            self.delivery = ""

    def work(self, prompts: list[agent_pb2.Prompt]) -> str:
        plan: dict[str, Any] = {}
        for prompt in prompts:
            if prompt.kind == agent_pb2.PROMPT_KIND_START:
                self.parent = prompt.from_agent_id
                plan = json.loads(prompt.text.partition("\n\n")[2])
        self.hear(prompts)
        for calls in plan.get("rounds", []):
            with ThreadPoolExecutor(len(calls)) as pool:
                answers = list(pool.map(self.call, calls))
            for (tool, _), answer in zip(calls, answers, strict=True):
                if tool == "wait":
                    self.tell(f"WAIT {answer.text}")
            self.hear(self.taken())
        return str(plan.get("answer", "Received."))

    def call(self, call: tuple[str, dict[str, Any]]) -> tool_service_pb2.CallToolResponse:
        tool, arguments = call
        self.calls += 1
        return self.tools.CallTool(
            tool_service_pb2.CallToolRequest(
                agent_id=AGENT,
                tool_call_id=f"{AGENT}-call-{self.calls}",
                name=tool,
                arguments_json=json.dumps(arguments).replace("$0", f"{AGENT}-call-1"),
            ),
            metadata=RIGHTS,
        )

    def taken(self) -> list[agent_pb2.Prompt]:
        taken = self.agents.TakePrompts(
            agent_service_pb2.TakePromptsRequest(
                agent_id=AGENT, acknowledge_delivery_id=self.delivery
            ),
            metadata=RIGHTS,
        )
        self.delivery = taken.delivery_id
        return list(taken.prompts)

    def hear(self, prompts: list[agent_pb2.Prompt]) -> None:
        for prompt in prompts:
            if prompt.kind == agent_pb2.PROMPT_KIND_MESSAGE:
                self.tell(f"GOT {prompt.body}")

    def tell(self, text: str) -> None:
        self.agents.SendMessage(
            agent_service_pb2.SendMessageRequest(
                agent_id=AGENT, recipient_id=self.parent, message=text
            ),
            metadata=RIGHTS,
        )


def main() -> None:
    with grpc.insecure_channel(os.environ["PINFOLD_ADDRESS"]) as channel:
        try:
            StubWorker(channel).serve()
        except grpc.RpcError as error:
            # The agent was stopped: that is how a worker's life ends.
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                sys.exit(f"{error.code()}: {error.details()}")


if __name__ == "__main__":
    main()
