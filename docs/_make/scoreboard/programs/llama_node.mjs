// @fugood/llama.node, native or (--wasm) its WebAssembly build, as a program of docs/command-protocol.md:
//     node llama_node.mjs [--wasm] ENVIRONMENT INPUTS OUTPUTS
// It takes text and shows text: the model needs the "marked" vocabulary of model_files.py, in which token 7 is "<7>".
// One thread, KV cache in float32, no flash attention.
import { readFileSync } from "node:fs";

const wasm = process.argv.includes("--wasm");
process.argv = process.argv.filter((word) => word !== "--wasm");
const protocol = await import("./protocol.mjs");
const { config } = protocol;
const name = wasm ? "@fugood/node-llama-wasm" : "@fugood/llama.node";
const options = {
  n_ctx: 512, n_threads: 1, n_gpu_layers: 0, n_parallel: 1, flash_attn_type: "off", cache_type_k: "f32", cache_type_v: "f32",
};

async function opened() {
  if (!wasm) return (await protocol.imported(name)).loadModel({ model: config.checkpoint, use_mmap: false, ...options });
  // The package is made for browsers, which fetch their files; Node's fetch takes no file: addresses.
  globalThis.window = globalThis;
  const fetched = globalThis.fetch;
  globalThis.fetch = (from, ...more) =>
    String(from).startsWith("file:")
      ? Promise.resolve(new Response(readFileSync(new URL(from)), { headers: { "content-type": "application/wasm" } }))
      : fetched(from, ...more);
  const { loadModel } = await protocol.imported(name);
  const bytes = readFileSync(config.checkpoint);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  return loadModel({ model: buffer, wasm: { worker: false, threads: false, cacheDownloads: false }, ...options });
}

// Node shows the whole line of an exception's source, and a minified one hides the message.
let context = await opened().catch((error) => {
  console.error(String(error.message ?? error));
  process.exit(1);
});
const text = (tokens) => tokens.map((token) => `<${token}>`).join("");
const ids = (shown) => [...shown.matchAll(/<(\d+)>/g)].map((found) => Number(found[1]));

// Every sampler is off: the probabilities shown are the softmax of the logits.
async function complete(prefix, n_predict, more) {
  const asked = {
    prompt: text(prefix), n_predict, top_k: 0, top_p: 1, min_p: 0, penalty_repeat: 1, seed: 1, ignore_eos: true, ...more,
  };
  // Its promise can resolve before it takes the next completion, and one that is refused then blocks all others.
  for (let tries = 0; ; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    try {
      return await context.completion(asked);
    } catch (error) {
      if (tries === 20 || !/in progress/.test(error.message)) throw error;
      context = await opened();
    }
  }
}

await protocol.answerText(async (prefix) => {
  const answer = await complete(prefix, 1, { temperature: 1, n_probs: config.vocab });
  // Of this completion: 1.7.15 keeps those of earlier completions in front of them (docs/findings).
  const probs = answer.completion_probabilities.at(-1).probs.filter(({ prob }) => prob > 1e-30);
  const logprobs = probs.map(({ tok_str, prob }) => [ids(tok_str)[0], Math.log(prob)]).filter(([id]) => id !== undefined);
  const best = logprobs.reduce((a, b) => (b[1] > a[1] ? b : a));
  return { token: best[0], logprobs };
});

await protocol.answerGenerate(async (prompt, count) => {
  const written = ids((await complete(prompt, count, { temperature: 0 })).text);
  const end = written.findIndex((token) => (config.eos ?? []).includes(token));
  return end < 0 ? written : written.slice(0, end + 1);
});

// By its own clock. The tokens of the text in reverse: it goes on from what a prompt shares with the one before.
const seconds = {}, tokens = [...(protocol.requests.text?.tokens ?? [])].reverse();
if (tokens.length > 8) {
  const { timings } = await complete(tokens, 17, { temperature: 0 });
  if (timings?.prompt_n === tokens.length) {
    seconds.prefill = timings.prompt_ms / 1000;
    seconds.step = timings.predicted_per_token_ms / 1000;
  }
}
protocol.finish(name, { [name]: protocol.versionOf(name) }, seconds.prefill ? seconds : undefined);
