// The openai client of npm, asking a server: node openai_client.cjs FOLDER URL; FOLDER has node_modules.
// Prints one JSON object.
const { createRequire } = require("node:module");
const [folder, baseURL] = process.argv.slice(2);
const OpenAI = createRequire(folder + "/")("openai");

async function main() {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const asked = { model: "smallest", max_tokens: 8, temperature: 0 };
  const messages = [{ role: "user", content: "Who art thou?" }];
  const chat = await client.chat.completions.create({ ...asked, messages });
  const stream = await client.chat.completions.create({
    ...asked, messages, stream: true, stream_options: { include_usage: true },
  });
  let streamed = "", usage = null;
  for await (const event of stream) {
    streamed += event.choices[0]?.delta?.content ?? "";
    usage = event.usage ?? usage;
  }
  // Its helper that gathers a stream checks the order and the form of the events.
  const gathered = await client.chat.completions.stream({ ...asked, messages }).finalContent();
  const completion = await client.completions.create({ ...asked, prompt: "In the", logprobs: 2 });
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  let refused = null;
  try {
    await client.completions.create({ ...asked, prompt: "a", stop: [""] });
  } catch (error) {
    refused = { kind: error.constructor.name, status: error.status, param: error.param, code: error.code };
  }
  const controller = new AbortController();
  const aborted = await client.completions.create(
    { ...asked, max_tokens: 60, prompt: "In the", stream: true }, { signal: controller.signal });
  for await (const event of aborted) { controller.abort(); break; }
  console.log(JSON.stringify({
    chat: chat.choices[0].message.content, finish: chat.choices[0].finish_reason, chatUsage: chat.usage, streamed,
    usage, gathered, completion: completion.choices[0].text,
    logprobs: completion.choices[0].logprobs.token_logprobs.length, models, refused,
  }));
}

main().catch((error) => { console.error(error); process.exit(1); });
