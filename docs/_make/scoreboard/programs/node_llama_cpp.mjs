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

// What it gives after each of the tokens, or after the last of them, as it goes on from what it has read.
async function read(tokens, next, last = next) {
  const began = performance.now();
  const asked = tokens.map((token, at) => [token, { generateNext: at === tokens.length - 1 ? last : next }]);
  const given = await sequence.controlledEvaluate(asked);
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
  // Each prefix in one prefill: a last token read alone may round to the other side of a tie, and the judge would find
  // one prompt with that tie broken, the next without.
  const { next, took } = await read(prefix, {}, { token: true, probabilities: true, options: { temperature: 0 } });
  if (!givesLogits) seconds.prefill = took;  // of the longest prefix, which is the last one
  const { token, probabilities } = next.at(-1);
  const given = [...(probabilities ?? [])].filter(([, probability]) => probability > 0);
  return { token, logprobs: given.map(([id, probability]) => [id, Math.log(probability)]) };
});

await protocol.answerGenerate(async (prompt, count) => {
  await sequence.clearHistory();
  const written = [], at = [];
  for await (const token of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    written.push(token);
    at.push(performance.now() / 1000);
    if (written.length === count || (config.eos ?? []).includes(token)) break;
  }
  if (!givesLogits && at.length > 8) seconds.step ??= protocol.median(at.slice(1).map((end, n) => end - at[n]));
  return written;
});

const versions = { "node-llama-cpp": protocol.versionOf("node-llama-cpp"), "llama.cpp": llama.llamaCppRelease?.release ?? "" };
protocol.finish("node-llama-cpp", versions, seconds.prefill ? seconds : undefined);
