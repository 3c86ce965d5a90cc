// @wllama/wllama in a browser without a window, as a program of docs/command-protocol.md:
//     node wllama_browser.mjs ENVIRONMENT INPUTS OUTPUTS
// The browser is the one that @sparticuz/chromium carries. It takes text: the model needs the "marked" vocabulary of
// model_files.py, in which token 7 is "<7>". One thread, KV cache in float32, no flash attention.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import * as protocol from "./protocol.mjs";

const { config } = protocol;
const NAME = "@wllama/wllama";
const FILES = {
  "/index.js": [protocol.found(`${NAME}/esm/index.js`), "text/javascript"],
  "/wllama.wasm": [protocol.found(`${NAME}/esm/wasm/wllama.wasm`), "application/wasm"],
  "/model.gguf": [config.checkpoint, "application/octet-stream"],
};
const server = createServer(({ url }, answer) => {
  const [path, type] = FILES[url] ?? [];
  answer.setHeader("content-type", type ?? "text/html");
  answer.end(path ? readFileSync(path) : "<!doctype html>");
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const chromium = (await protocol.imported("@sparticuz/chromium")).default;
const puppeteer = (await protocol.imported("puppeteer-core")).default;
const browser = await puppeteer.launch({
  executablePath: await chromium.executablePath(), args: [...chromium.args, "--no-sandbox"], headless: "shell",
});
const failed = async (error) => {
  console.error(String(error.message ?? error).split("\n")[0]);
  await browser.close();
  process.exit(1);
};
const page = await browser.newPage();
// loadModel() resolves where llama.cpp refuses the file, and what is asked after it fails: its own words say why.
page.on("console", (line) => /^(gguf_|llama_|GGML_ASSERT)/.test(line.text()) && console.error(line.text()));
await page.goto(`http://127.0.0.1:${server.address().port}/`);
await page.evaluate(async () => {
  const { Wllama, LoggerWithoutDebug } = await import("/index.js");
  const engine = new Wllama({ default: "/wllama.wasm" }, { logger: LoggerWithoutDebug });
  const model = await (await fetch("/model.gguf")).blob();
  await engine.loadModel([model], {
    n_ctx: 512, n_threads: 1, n_gpu_layers: 0, n_parallel: 1, flash_attn: false, cache_type_k: "f32", cache_type_v: "f32",
    warmup: false,
  });
  globalThis.complete = (options) => engine.createCompletion(options);
}).catch(failed);

// Every sampler is off: the probabilities shown are the softmax of the logits.
const complete = (tokens, max_tokens, more) => page
  .evaluate((options) => globalThis.complete(options), {
    prompt: tokens.map((token) => `<${token}>`).join(""), max_tokens, temperature: 0, top_k: 0, top_p: 1, min_p: 0, penalty_repeat: 1, seed: 1, ...more,
  })
  .catch(failed);

await protocol.answerText(async (prefix) => {
  const { choices } = await complete(prefix, 1, { logprobs: config.vocab, ignore_eos: true });
  const { id, top_logprobs } = choices[0].logprobs.content[0];
  return { token: id, logprobs: top_logprobs.map((one) => [one.id, one.logprob]) };
});

await protocol.answerGenerate(async (prompt, count) => {
  const { choices } = await complete(prompt, count, { logprobs: 1 });
  return choices[0].logprobs.content.map(({ id }) => id);
});

// By its own clock. The tokens of the text in reverse: it goes on from what a prompt shares with the one before.
const seconds = {}, tokens = [...(protocol.requests.text?.tokens ?? [])].reverse();
if (tokens.length > 8) {
  const { timings } = await complete(tokens, 17, { ignore_eos: true });
  if (timings?.prompt_n === tokens.length) {
    seconds.prefill = timings.prompt_ms / 1000;
    seconds.step = timings.predicted_per_token_ms / 1000;
  }
}
const about = { [NAME]: protocol.versionOf(NAME), browser: (await browser.version()).replace("/", " ") };
await browser.close();
protocol.finish(NAME, about, seconds.prefill ? seconds : undefined);
