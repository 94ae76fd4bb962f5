// Plays tasks through one client: `node run.mjs CLIENT whole|streamed BASE TASK…` prints what the
// client's own types made of the answers, as JSON.

import { Messages } from "./anthropic.mjs";
import { Chat, Responses } from "./openai.mjs";
import { play } from "./session.mjs";
import { playVercel } from "./vercel.mjs";

const CLIENTS = { "openai-chat": Chat, "openai-responses": Responses, "anthropic": Messages };

const [name, how, base, ...tasks] = process.argv.slice(2);
const streamed = how === "streamed";
const answers = name.startsWith("vercel-")
  ? await playVercel(name.slice("vercel-".length), base, streamed, tasks)
  : await play(new CLIENTS[name](base, streamed), tasks);
process.stdout.write(JSON.stringify(answers));
