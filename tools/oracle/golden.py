"""Reference runs and answers, and the files that `zoo gate` reads them from."""

import json
import os
from pathlib import Path

from checkpoint import Problem, read_json

# The texts that published gates of this family used.
PUBLISHED = (
    "Why is the sky blue?",
    "What is the capital of France?",
    "Explain photosynthesis in one sentence.",
)


class Text:
    """A checkpoint's tokenizer with its chat template."""

    def __init__(self, path):
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except Exception as error:  # of many kinds
            raise Problem(f"{path} has no tokenizer that can be read: {error}") from error
        if not self.tokenizer.chat_template:
            raise Problem(f"{path} has no chat template: give prompts as token ids with --ids and --only")

    def prompt(self, question):
        """The ids of a conversation in which one question was asked, up to where the answer starts."""
        made = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(made["input_ids"])

    def decode(self, ids):
        """The text of an answer."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


class Decoder:
    """A model with one sequence under way."""

    def __init__(self, model, new_cache):
        self.model, self.new_cache, self.cache = model, new_cache, None

    def start(self, ids, **kwargs):
        """Feed a prompt to a fresh cache; what transformers returns."""
        self.cache = self.new_cache()
        return self.feed(ids, **kwargs)

    def feed(self, ids, **kwargs):
        """Feed further tokens."""
        import torch

        at = torch.tensor([ids], device=self.model.device)
        with torch.inference_mode():
            return self.model(input_ids=at, cache=self.cache, use_cache=True, **kwargs)


def run(decoder, prompt, steps, *, logits="all", hidden=False):
    """One greedy run: an entry of golden.json, and tensors by the beginning of their names."""
    import torch

    kwargs = {"output_hidden_states": True} if hidden else {}
    out = decoder.start(prompt, logits_to_keep=0 if logits == "all" else 1, **kwargs)
    tensors = {}
    if logits == "all":
        tensors["logits"] = out.logits[0].float().cpu().contiguous()
    if hidden:
        tensors["hidden"] = torch.stack([h[0] for h in out.hidden_states]).float().cpu()
    last = out.logits[0, -1].float()
    greedy, margin = [], []
    for _ in range(steps):
        if not last.isfinite().all():
            raise Problem(f"after {len(prompt) + len(greedy)} tokens there are logits that are not finite")
        best = last.topk(2).values
        margin.append(round((best[0] - best[1]).item(), 6))
        greedy.append(last.argmax().item())
        last = decoder.feed(greedy[-1:]).logits[0, -1].float()
    if logits != "none":
        tensors["last_logits"] = last.cpu()
    return {"prompt": list(prompt), "greedy": greedy, "margin": margin}, tensors


def answer(decoder, prompt, stop_ids, most):
    """The ids of the greedy answer, at most so many, without the id that ends it."""
    ids = []
    last = decoder.start(prompt, logits_to_keep=1).logits[0, -1]
    while len(ids) < most:
        token = last.argmax().item()
        if token in stop_ids:
            break
        ids.append(token)
        last = decoder.feed([token]).logits[0, -1]
    return ids


def read_questions(path):
    """The questions of a file, an object a line."""
    questions = []
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {error}") from error
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            q = json.loads(line)
        except ValueError as error:
            raise Problem(f"{path}: line {n} is not JSON: {error}") from error
        if not isinstance(q, dict) or not all(isinstance(q.get(k), str) and q[k] for k in ("question", "expected")):
            raise Problem(f'{path}: line {n} is not an object with the texts "question" and "expected"')
        questions.append({"question": q["question"], "expected": q["expected"]})
    if not questions:
        raise Problem(f"{path} has no questions")
    return questions


def read_prompts(path):
    """The prompts of a file: a text a line, or a list of token ids as JSON."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {error}") from error
    prompts = [parse_ids(line) if line.lstrip().startswith("[") else line for line in lines if line.strip()]
    if not prompts:
        raise Problem(f"{path} has no prompts")
    return prompts


def parse_ids(text):
    """Token ids, separated by commas or blanks."""
    words = text.strip().strip("[]").replace(",", " ").split()
    if not words or not all(w.isdecimal() for w in words):
        raise Problem(f"{text!r} is no list of token ids such as 2,105,2364")
    return [int(w) for w in words]


def check_ids(prompts, steps, vocabulary, context):
    """Refuse prompts that the model cannot take."""
    for ids in prompts:
        wrong = [t for t in ids if t >= vocabulary]
        if wrong:
            raise Problem(f"token {wrong[0]} is not in a vocabulary of {vocabulary}")
        if len(ids) + steps > context:
            raise Problem(f"a prompt of {len(ids)} tokens and {steps} steps do not fit in a context of {context}")


def write(out, about, runs, tensors, questions):
    """Write the files, golden.json last: a folder without it is not complete."""
    from safetensors.torch import save_file

    def text(name, content):
        partial = out / (name + ".partial")
        partial.write_text(content, encoding="utf-8")
        os.replace(partial, out / name)

    partial = out / "golden.safetensors.partial"
    save_file(tensors, str(partial))
    os.replace(partial, out / "golden.safetensors")
    if questions is not None:
        text("questions.jsonl", "".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions))
    text("golden.json", json.dumps({**about, "runs": runs}, ensure_ascii=False) + "\n")


def read(path):
    """The content of a golden.json, for comparing."""
    return read_json(Path(path) / "golden.json")
