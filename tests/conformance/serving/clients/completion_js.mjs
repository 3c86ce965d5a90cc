// llama.cpp's own client for pages, completion.js of its server, asking a server: node completion_js.mjs FILE URL.
// Prints one JSON object.
import { pathToFileURL } from "node:url";

const [file, api_url] = process.argv.slice(2);
const { llama } = await import(pathToFileURL(file).href);

// What its page sends, as far as its settings have values.
const params = { n_predict: 8, temperature: 0, cache_prompt: true, stop: ["</s>"], n_probs: 0 };
let text = "", events = 0, last = null;
for await (const chunk of llama("In the", params, { api_url })) {
  text += chunk.data.content;
  events += 1;
  last = chunk.data;
}
console.log(JSON.stringify({ text, events, stop: last.stop, predicted: last.timings?.predicted_n }));
