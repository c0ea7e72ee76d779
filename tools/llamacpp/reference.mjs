// Writes what llama.cpp answers to some texts as reference values, which `zoo gate
// --reference` holds a pack of the same GGUF file against:
//
//   npm install --ignore-scripts --omit=optional node-llama-cpp@3.22.1
//   npm install --ignore-scripts --no-save @node-llama-cpp/linux-x64@3.22.1
//   node reference.mjs MODEL.gguf PROMPTS.json TOKENS MARGINS OUT_DIR
//
// PROMPTS.json is a list of texts. Each gets the model's token for the beginning of a text and
// is continued greedily by so many TOKENS. OUT_DIR/golden.json takes the tokens and, for the
// first MARGINS of each, the difference of the two largest logits, which is the logarithm of the
// ratio of their probabilities; behind them stands 0. Margins are slow: all probabilities of
// the vocabulary pass through an object for each.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modelPath, promptsPath, count, margins, out] = process.argv.slice(2);
if (out === undefined) {
  console.error("usage: reference.mjs MODEL.gguf PROMPTS.json TOKENS MARGINS OUT_DIR");
  process.exit(2);
}
// The package is that of the working folder, wherever this file lies.
const { getLlama } = await import(pathToFileURL(createRequire(process.cwd() + "/").resolve("node-llama-cpp")));

// margin returns the difference of the two largest logits.
function margin(probabilities) {
  let first = 0, second = 0;
  for (const p of probabilities.values()) {
    if (p > first) [first, second] = [p, first];
    else if (p > second) second = p;
  }
  return Math.log(first / second);
}

const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath, gpuLayers: 0 });
const context = await model.createContext({ contextSize: 2048, sequences: 1, threads: Number(process.env.THREADS ?? 1) });
const sequence = context.getSequence();
const greedy = { temperature: 0, yieldEogToken: true };
const runs = [];
for (const text of JSON.parse(readFileSync(promptsPath, "utf8"))) {
  await sequence.clearHistory();
  const prompt = [model.tokens.bos, ...model.tokenize(text)];
  const run = { prompt, greedy: [], margin: [] };
  let next = prompt; // what has not been evaluated yet
  if (Number(margins) > 0) {
    for await (const { token, probabilities } of sequence.evaluateWithMetadata(next, { probabilities: true }, greedy)) {
      run.greedy.push(token);
      run.margin.push(margin(probabilities));
      if (run.greedy.length >= Math.min(margins, count)) break;
    }
    next = run.greedy.slice(-1);
  }
  if (run.greedy.length < count) {
    for await (const token of sequence.evaluate(next, greedy)) {
      run.greedy.push(token);
      run.margin.push(0);
      if (run.greedy.length >= count) break;
    }
  }
  runs.push(run);
}
writeFileSync(out + "/golden.json", JSON.stringify({ runs }) + "\n");
// No logits: a header without tensors.
writeFileSync(out + "/golden.safetensors", Buffer.concat([Buffer.from([8, 0, 0, 0, 0, 0, 0, 0]), Buffer.from("{}      ")]));
await llama.dispose();
