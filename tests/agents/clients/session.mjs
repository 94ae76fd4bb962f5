// What all drivers have in common: the tools of a small repository, and a session of tasks played
// to its end. It never speaks to a server itself.

import { createRequire } from "node:module";

// Packages lie where PLIMSOLL_CLIENTS says, or beside this file.
const at = process.env.PLIMSOLL_CLIENTS;
export const load = createRequire(at ? `${at}/package.json` : import.meta.url);

const string = { type: "string" };
export const TOOLS = [
  ["grep", { pattern: string }],
  ["read_file", { path: string }],
  ["write_file", { path: string, text: string }],
].map(([name, properties]) => ({
  name,
  description: `${name} of the tests`,
  schema: { type: "object", properties },
}));
export const SYSTEM = "You work on a small repository.";

// Sizes as in real work, content that names its call.
export function runTool(name, given) {
  if (name === "read_file" && given.path.startsWith("long/")) {
    const line = (_, n) => `${given.path}:${n}: value ${(n * 37) % 101}`;
    return Array.from({ length: 40 }, line).join("\n");
  }
  return `${name} ${JSON.stringify(given)} done`;
}

// Its `ask()` returns {text, calls: [{id, name, input}], finish, raw}.
export async function play(client, tasks) {
  const answers = [];
  for (const task of tasks) {
    client.tell(task);
    for (;;) {
      const answer = await client.ask();
      answers.push(answer);
      if (answer.calls.length === 0) break;
      client.results(answer.calls.map((call) => ({ ...call, result: runTool(call.name, call.input) })));
      if (answers.length > 60) throw new Error("the session does not end");
    }
  }
  return answers;
}
