// OpenAI's client, by its own types: Chat Completions and Responses, whole and by its stream
// helpers, which refuse events that do not fit together.

import { SYSTEM, TOOLS, load } from "./session.mjs";

const OpenAI = load("openai").default ?? load("openai");
const api = (baseURL) => new OpenAI({ baseURL, apiKey: "sk-tests-5ecre7", maxRetries: 0 });

export class Chat {
  constructor(base, streamed) {
    this.api = api(base);
    this.streamed = streamed;
    this.messages = [{ role: "system", content: SYSTEM }];
    const tool = ({ name, description, schema }) => ({ name, description, parameters: schema });
    this.tools = TOOLS.map((given) => ({ type: "function", function: tool(given) }));
  }

  tell(text) {
    this.messages.push({ role: "user", content: text });
  }

  async ask() {
    const wish = { model: "scripted", messages: this.messages, tools: this.tools };
    const completions = this.api.chat.completions;
    const usage = { stream_options: { include_usage: true } };
    const raw = this.streamed
      ? await completions.stream({ ...wish, ...usage }).finalChatCompletion()
      : await completions.create(wish);
    const { message, finish_reason: finish } = raw.choices[0];
    this.messages.push(message);
    const calls = (message.tool_calls ?? []).map(({ id, function: { name, arguments: text } }) => ({
      id,
      name,
      input: JSON.parse(text),
    }));
    return { text: message.content ?? "", calls, finish, usage: raw.usage, raw };
  }

  results(results) {
    for (const { id, result } of results) {
      this.messages.push({ role: "tool", tool_call_id: id, content: result });
    }
  }
}

export class Responses {
  constructor(base, streamed) {
    this.api = api(base);
    this.streamed = streamed;
    this.input = [];
    const tool = ({ name, description, schema }) => ({ name, description, parameters: schema });
    this.tools = TOOLS.map((given) => ({ type: "function", strict: false, ...tool(given) }));
  }

  tell(text) {
    this.input.push({ role: "user", content: text });
  }

  async ask() {
    const wish = {
      model: "scripted",
      instructions: SYSTEM,
      input: this.input,
      tools: this.tools,
      store: false,
      reasoning: { summary: "auto" },
      include: ["reasoning.encrypted_content"],
    };
    const raw = this.streamed
      ? await this.api.responses.stream(wish).finalResponse()
      : await this.api.responses.create(wish);
    const plain = ({ parsed, parsed_arguments, ...item }) => item;
    for (const item of raw.output.map(plain)) {
      this.input.push(item.content ? { ...item, content: item.content.map(plain) } : item);
    }
    const calls = raw.output
      .filter((item) => item.type === "function_call")
      .map(({ call_id: id, name, arguments: text }) => ({ id, name, input: JSON.parse(text) }));
    return { text: raw.output_text, calls, finish: raw.status, usage: raw.usage, raw };
  }

  results(results) {
    for (const { id, result } of results) {
      this.input.push({ type: "function_call_output", call_id: id, output: result });
    }
  }
}
