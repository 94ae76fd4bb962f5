// The Vercel AI SDK with each of its providers that speaks a dialect of ours: it runs the tools
// itself, step after step, so that what it makes of an answer is what it sends back.

import { SYSTEM, TOOLS, load, runTool } from "./session.mjs";

const { generateText, isStepCount, jsonSchema, streamText, tool } = load("ai");
const apiKey = "sk-tests-5ecre7";
const store = { providerOptions: { openai: { store: false } } };

// Each: (base) -> [model, what its calls are given besides].
export const PROVIDERS = {
  compatible: (baseURL) => {
    const { createOpenAICompatible } = load("@ai-sdk/openai-compatible");
    const provider = createOpenAICompatible({ name: "tests", baseURL, apiKey, includeUsage: true });
    return [provider("scripted"), {}];
  },
  chat: (baseURL) => [load("@ai-sdk/openai").createOpenAI({ baseURL, apiKey }).chat("scripted"), {}],
  responses: (baseURL) => {
    const provider = load("@ai-sdk/openai").createOpenAI({ baseURL, apiKey });
    return [provider.responses("scripted"), store];
  },
  messages: (baseURL) => {
    const provider = load("@ai-sdk/anthropic").createAnthropic({ baseURL, apiKey });
    return [provider("scripted"), { maxOutputTokens: 2000 }];
  },
};

const tools = Object.fromEntries(
  TOOLS.map(({ name, description, schema }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(schema),
      execute: (input) => runTool(name, input),
    }),
  ]),
);

export async function playVercel(provider, base, streamed, tasks) {
  const [model, more] = PROVIDERS[provider](base);
  const stopWhen = isStepCount(60);
  const messages = [];
  const answers = [];
  for (const task of tasks) {
    messages.push({ role: "user", content: task });
    const wish = { model, tools, messages, stopWhen, maxRetries: 0, instructions: SYSTEM, ...more };
    const failed = [];
    const onError = ({ error }) => failed.push(error);
    const result = streamed ? streamText({ ...wish, onError }) : await generateText(wish);
    if (streamed) await result.consumeStream();
    if (failed.length > 0) throw failed[0];
    for (const step of await result.steps) {
      const calls = step.toolCalls.map(({ toolCallId: id, toolName: name, input }) => ({
        id,
        name,
        input,
      }));
      const { text, finishReason: finish, usage, content } = step;
      answers.push({ text, calls, finish, usage, raw: content });
    }
    messages.push(...(await result.responseMessages));
  }
  return answers;
}
