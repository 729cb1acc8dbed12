/** The loop of a harness: a model's tool calls in, texts for the model out. */

import { type Agent, Pinfold } from "@pinfold/client";

interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** In place of a model: two rounds of tool calls, then an answer. */
function* model(): Generator<ToolCall[], string, string[]> {
  yield [
    { id: "call-1", name: "shell", arguments: '{"command": "echo quick"}' },
    { id: "call-2", name: "shell", arguments: '{"command": "sleep 3; echo slow"}' },
  ];
  const [waited] = yield [{ id: "call-3", name: "wait", arguments: "{}" }];
  return `the slow one says: ${waited}`;
}

async function answer(agent: Agent): Promise<string> {
  const { tools, guidance } = await agent.listTools();
  console.log(`${tools.length} tools, ${guidance.length} characters for the system prompt`);

  const thinking = model();
  let step = thinking.next();
  while (!step.done) {
    const texts = await Promise.all(
      step.value.map(async (call) => {
        const options = { toolCallId: call.id };
        const { text } = await agent.callTool(call.name, call.arguments, options);
        console.log(`--- ${call.name} ${call.arguments}\n${text}`);
        return text;
      }),
    );
    // What has arrived meanwhile would go to the model with the next request.
    await agent.takePrompts();
    step = thinking.next(texts);
  }
  return step.value;
}

await using pinfold = Pinfold.connect();
const agent = await pinfold.openAgent();
await agent.sendPrompt("Do something quick and something slow.");
const turn = await agent.nextTurn();
if (turn !== undefined) {
  console.log(turn.text);
  await agent.endTurn(turn.turnId, await answer(agent));
}
await agent.stop();
