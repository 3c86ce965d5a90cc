// node-llama-cpp as a program of docs/command-protocol.md: node node_llama_cpp.mjs ENVIRONMENT INPUTS OUTPUTS
// It answers sessions by logits where its version gives them, and next tokens by probabilities; one thread, KV cache
// in float32, no flash attention.
import * as protocol from "./protocol.mjs";

const { config } = protocol;
const { getLlama } = await protocol.imported("node-llama-cpp");
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: config.checkpoint, gpuLayers: 0 }).catch((error) => {
  console.error(`failed to load model: ${error.message}`);
  process.exit(1);
});
// A context that is full is shifted, so this one is larger than what is asked.
const context = await model.createContext({
  contextSize: 2048, batchSize: 512, threads: 1, flashAttention: false,
  experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
});
const sequence = context.getSequence();
const seconds = {};

// What it gives after each of the tokens, as it goes on from what it has read.
async function read(tokens, next) {
  const began = performance.now();
  const given = await sequence.controlledEvaluate(tokens.map((token) => [token, { generateNext: next }]));
  return { next: given.map((one) => one.next), took: (performance.now() - began) / 1000 };
}

// Versions before 3.19 leave holes where others give logits.
const givesLogits = (await read([0], { logits: true })).next[0]?.logits !== undefined;
if (givesLogits) await protocol.answerLogits(async (tokens, chunks) => {
  await sequence.clearHistory();
  const rows = new Float32Array(tokens.length * config.vocab), times = [];
  let start = 0;
  for (const count of chunks) {
    const { next, took } = await read(tokens.slice(start, start + count), { logits: true });
    times.push(took);
    next.forEach(({ logits }, at) => {
      for (const [token, value] of logits) rows[(start + at) * config.vocab + token] = value;
    });
    start += count;
  }
  if (chunks.length === 1 && chunks[0] > 8) seconds.prefill ??= times[0];
  if (chunks.length > 8 && chunks.every((count) => count === 1)) seconds.step ??= protocol.median(times);
  return rows;
});

await protocol.answerText(async (prefix) => {
  await sequence.clearHistory();
  const options = { temperature: 0 };
  await read(prefix.slice(0, -1), {});
  const { next } = await read(prefix.slice(-1), { token: true, probabilities: true, options });
  const given = [...(next[0].probabilities ?? [])].filter(([, probability]) => probability > 0);
  return { token: next[0].token, logprobs: given.map(([id, probability]) => [id, Math.log(probability)]) };
});

await protocol.answerGenerate(async (prompt, count) => {
  await sequence.clearHistory();
  const written = [];
  for await (const token of sequence.evaluate(prompt, { temperature: 0 })) {
    written.push(token);
    if (written.length === count || (config.eos ?? []).includes(token)) break;
  }
  return written;
});

const versions = { "node-llama-cpp": protocol.versionOf("node-llama-cpp"), "llama.cpp": llama.llamaCppRelease?.release ?? "" };
protocol.finish("node-llama-cpp", versions, seconds.prefill ? seconds : undefined);
