// Anthropic's client, by its own types: whole, and by its stream helper, which puts the message
// together from the events.

import { SYSTEM, TOOLS, load } from "./session.mjs";

const Anthropic = load("@anthropic-ai/sdk").default ?? load("@anthropic-ai/sdk");

export class Messages {
  constructor(base, streamed) {
    const baseURL = base.replace(/\/v1$/, "");
    this.api = new Anthropic({ baseURL, apiKey: "sk-tests-5ecre7", maxRetries: 0 });
    this.streamed = streamed;
    this.messages = [];
    const tool = ({ name, description, schema }) => ({ name, description, input_schema: schema });
    this.tools = TOOLS.map(tool);
  }

  tell(text) {
    this.messages.push({ role: "user", content: text });
  }

  async ask() {
    const wish = {
      model: "scripted",
      max_tokens: 2000,
      system: SYSTEM,
      messages: this.messages,
      tools: this.tools,
      thinking: { type: "enabled", budget_tokens: 1024 },
    };
    const raw = this.streamed
      ? await this.api.messages.stream(wish).finalMessage()
      : await this.api.messages.create(wish);
    const plain = ({ parsed_output, ...block }) => block;
    this.messages.push({ role: "assistant", content: raw.content.map(plain) });
    const calls = raw.content
      .filter((block) => block.type === "tool_use")
      .map(({ id, name, input }) => ({ id, name, input }));
    const texts = raw.content.filter((block) => block.type === "text").map((block) => block.text);
    return { text: texts.join(""), calls, finish: raw.stop_reason, usage: raw.usage, raw };
  }

  results(results) {
    const blocks = results.map(({ id, result }) => ({
      type: "tool_result",
      tool_use_id: id,
      content: result,
    }));
    this.messages.push({ role: "user", content: blocks });
  }
}
