// Talks to `lemon serve` with the official JavaScript client, and prints what it saw as JSON.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, baseURL, apiKey, question, slow] = process.argv.slice(2);
const require = createRequire(pathToFileURL(join(folder, "node_modules", "x.js")));
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));

const seen = {};
const client = new OpenAI({ baseURL, apiKey });
seen.models = (await client.models.list()).data.map((model) => model.id);
const messages = [{ role: "user", content: question }];
const whole = await client.chat.completions.create({ model: "lemon", messages, seed: 11 });
seen.answer = whole.choices[0].message.content;
seen.total = whole.usage.total_tokens;

const stream = await client.chat.completions.create({
  model: "lemon",
  messages,
  seed: 12,
  stream: true,
  stream_options: { include_usage: true },
});
seen.streamed = "";
for await (const chunk of stream) {
  seen.streamed += chunk.choices[0]?.delta?.content ?? "";
  seen.streamTotal = chunk.usage?.total_tokens ?? seen.streamTotal;
}
seen.response = (await client.responses.create({ model: "lemon", input: question })).output_text;

seen.errors = {};
const failing = { "unknown model": { model: "gpt-4", messages }, "bad value": { model: "lemon", messages, n: 2 } };
for (const [name, ask] of Object.entries(failing)) {
  try {
    await client.chat.completions.create(ask);
    seen.errors[name] = null;
  } catch (error) {
    seen.errors[name] = [error.constructor.name, error.code];
  }
}
try {
  const slowly = { model: "lemon", messages: [{ role: "user", content: slow }] };
  await client.chat.completions.create(slowly, { timeout: 300, maxRetries: 1 });
  seen.errors.timeout = null;
} catch (error) {
  seen.errors.timeout = [error.constructor.name, null];
}
console.log(JSON.stringify(seen));
