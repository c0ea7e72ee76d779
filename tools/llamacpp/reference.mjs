// Writes what llama.cpp answers to some texts as reference values, which `zoo gate
// --reference` holds a pack of the same GGUF file against:
//
//   npm install --ignore-scripts --omit=optional node-llama-cpp@3.22.1
//   npm install --ignore-scripts --no-save @node-llama-cpp/linux-x64@3.22.1
//   node reference.mjs [--exact] MODEL.gguf PROMPTS.json TOKENS MARGINS OUT_DIR [SEQUENCES]
//
// PROMPTS.json is a list of texts. Each gets the model's token for the beginning of a text and
// is continued greedily by so many TOKENS. OUT_DIR/golden.json takes the tokens and, for the
// first MARGINS of each, the difference of the two largest logits; behind them stands 0. For a
// margin the whole vocabulary is sorted, which takes longer than the token.
//
// SEQUENCES texts, 1 by default, are continued side by side, which reads the weights once for
// all of them. That changes the last bits of float sums, and with them, where two tokens are
// nearly as likely, the token.
//
// --exact keeps keys and values in float32, and works without flash attention, which rounds
// them to float16. With a file of float32, as dequantize.py writes it, nothing is rounded then.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const args = process.argv.slice(2), exact = args[0] === "--exact";
const [modelPath, promptsPath, count, margins, out, sequences = 1] = exact ? args.slice(1) : args;
if (out === undefined) {
  console.error("usage: reference.mjs [--exact] MODEL.gguf PROMPTS.json TOKENS MARGINS OUT_DIR [SEQUENCES]");
  process.exit(2);
}
// The package is that of the working folder, wherever this file lies.
const { getLlama } = await import(pathToFileURL(createRequire(process.cwd() + "/").resolve("node-llama-cpp")));

const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath, gpuLayers: 0 });
const unrounded = { flashAttention: false, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32" };
const context = await model.createContext({
  contextSize: 2048, sequences: Number(sequences), threads: Number(process.env.THREADS ?? 1), ...(exact ? unrounded : {}),
});

// answer continues a text.
async function answer(sequence, text) {
  await sequence.clearHistory();
  const prompt = [model.tokens.bos, ...model.tokenize(text)];
  const run = { prompt, greedy: [], margin: [] };
  let input = prompt; // what has not been evaluated yet
  while (run.greedy.length < count) {
    const generateNext = { token: true, options: { temperature: 0 } };
    if (run.greedy.length < margins) generateNext.logits = { filter: { tokens: [], includeTop: 2 } };
    const results = await sequence.controlledEvaluate([...input.slice(0, -1), [input.at(-1), { generateNext }]]);
    const { token, logits } = results.at(-1).next;
    const [first, second] = logits === undefined ? [0, 0] : [...logits.values()].sort((a, b) => b - a);
    run.greedy.push(token);
    run.margin.push(first - second);
    input = [token];
  }
  return run;
}

const runs = [], todo = JSON.parse(readFileSync(promptsPath, "utf8")).entries();
await Promise.all(Array.from({ length: Number(sequences) }, async () => {
  const sequence = context.getSequence();
  for (const [i, text] of todo) runs[i] = await answer(sequence, text);
}));
writeFileSync(out + "/golden.json", JSON.stringify({ runs }) + "\n");
// No logits: a header without tensors.
writeFileSync(out + "/golden.safetensors", Buffer.concat([Buffer.from([8, 0, 0, 0, 0, 0, 0, 0]), Buffer.from("{}      ")]));
await llama.dispose();
