// docs/command-protocol.md for programs in JavaScript: what is asked, and how answers are written.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

// argv: ENVIRONMENT INPUTS OUTPUTS. ENVIRONMENT has node_modules.
export const [environment, inputs, outputs] = process.argv.slice(2).map((folder) => resolve(folder));
export const config = JSON.parse(readFileSync(join(inputs, "config.json"), "utf8"));
export const requests = JSON.parse(readFileSync(join(inputs, "requests.json"), "utf8"));

const require = createRequire(join(environment, "/"));
export const imported = async (name) => import(pathToFileURL(require.resolve(name)).href);
export const required = (name) => require(name);
export const found = (path) => join(environment, "node_modules", path);
export const versionOf = (name) => JSON.parse(readFileSync(found(`${name}/package.json`), "utf8")).version;

const arrays = {}, raised = {}, behaviours = {};

// Answers each session by read(tokens, chunks): a Float32Array [tokens, vocab]. A session that throws is named.
export async function answerLogits(read) {
  for (const { id, tokens, chunks } of requests.logits ?? []) {
    try {
      const data = await read(tokens, chunks);
      arrays[`logits/${id}`] = { dtype: "F32", shape: [tokens.length, config.vocab], data };
    } catch (error) {
      raised[`logits/${id}`] = String(error.message ?? error);
    }
  }
}

// Answers `text` by complete(prefix): {token, logprobs: [[id, value], ...]}.
export async function answerText(complete) {
  const tokens = requests.text?.tokens ?? [];
  if (!tokens.length) return;
  const rows = [];
  for (let n = 1; n <= tokens.length; n++) rows.push(await complete(tokens.slice(0, n)));
  const width = Math.max(0, ...rows.map((row) => row.logprobs.length));
  const ids = new BigInt64Array(tokens.length * width).fill(-1n), values = new Float64Array(tokens.length * width);
  rows.forEach(({ logprobs }, at) => logprobs.forEach(([id, value], n) => {
    ids[at * width + n] = BigInt(id);
    values[at * width + n] = value;
  }));
  const chosen = BigInt64Array.from(rows, ({ token }) => BigInt(token ?? -1));
  arrays["text/token"] = { dtype: "I64", shape: [tokens.length], data: chosen };
  if (width) {
    arrays["text/ids"] = { dtype: "I64", shape: [tokens.length, width], data: ids };
    arrays["text/logprobs"] = { dtype: "F64", shape: [tokens.length, width], data: values };
  }
}

// Answers `generate` by write(prompt, count): a list of ids, greedy. Questions with options are left out.
export async function answerGenerate(write) {
  for (const { id, method, arguments: given } of requests.behaviours ?? []) {
    const [prompt, count, options] = given;
    if (method !== "generate" || Object.keys(options ?? {}).length) continue;
    try {
      behaviours[id] = await write(prompt, count);
    } catch (error) {
      raised[`behaviours/${id}`] = String(error.message ?? error);
    }
  }
}

export function finish(name, versions, seconds) {
  writeFileSync(join(outputs, "outputs.safetensors"), safetensors());
  const answer = { protocol: "tritgold.command/1", name, versions: { ...versions, node: process.version }, raised };
  if (Object.keys(behaviours).length) answer.behaviours = behaviours;
  if (seconds) answer.seconds = seconds;
  writeFileSync(join(outputs, "answer.json"), JSON.stringify(answer));
  process.exit(0);
}

export const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

function safetensors() {
  const header = {};
  let offset = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(arrays)) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const parts = Object.values(arrays).map(({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  return Buffer.concat([length, text, ...parts]);
}
