#!/usr/bin/env python3
"""Write the reference values that `zoo gate` holds a pack against.

They are computed by Hugging Face transformers from the checkpoint itself; nothing of zoo has a part in them.
"""

import argparse
import sys
import time
from pathlib import Path

import checkpoint as checkpoints
import golden
import grids
from checkpoint import Problem


def arguments(argv):
    """Parse the command line."""
    p = argparse.ArgumentParser(
        prog="oracle.py",
        description="Write golden.json, golden.safetensors and, with --questions, questions.jsonl for a Gemma 4 checkpoint.",
        epilog="Then: zoo gate NAME --adopt OUT",
    )
    p.add_argument("checkpoint", help="folder of a checkpoint, or its name on the hub")
    p.add_argument("-o", "--out", required=True, type=Path, help="folder for the files; it must not hold any yet")
    p.add_argument("--revision", help="commit, tag or branch on the hub")
    numbers = p.add_argument_group("arithmetic (by default what the checkpoint has scales for, and else float; zoo rounds activations to 16 bits where it has none)")
    numbers.add_argument("--grid", choices=("none", *grids.GRIDS), default="none", help="round bfloat16 weights to this grid")
    numbers.add_argument("--activations", choices=("static", "float"), default="static", help="static obeys the checkpoint's activation scales")
    numbers.add_argument("--kv", choices=("float", "int8"), help="how keys and values are stored (default int8 where the checkpoint has scales)")
    numbers.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16 is rougher: for a look, not for a gate")
    numbers.add_argument("--low-memory", action="store_true", help="same values, less memory, slower: widen weights when they are used")
    numbers.add_argument("--device", default="cpu", help="device of torch, such as cuda or mps")
    numbers.add_argument("--threads", type=int, help="threads of torch")
    what = p.add_argument_group("what is run (the three published prompts and)")
    what.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="a further question; may be repeated")
    what.add_argument("--prompts", metavar="FILE", help="further ones, a text or a JSON list of token ids a line")
    what.add_argument("--ids", action="append", default=[], metavar="2,105,…", help="a prompt as token ids; may be repeated")
    what.add_argument("--only", action="store_true", help="leave the published prompts out")
    what.add_argument("--steps", type=int, default=40, help="tokens after each prompt (default 40)")
    what.add_argument("--logits", choices=("all", "last", "none"), default="all", help="which logits to keep: 4 bytes × vocabulary a position")
    what.add_argument("--hidden", action="store_true", help="keep each layer's output for the first prompt, too")
    what.add_argument("--questions", metavar="FILE.jsonl", help='{"question", "expected"} a line, to be answered')
    what.add_argument("--answer-tokens", type=int, default=64, metavar="N", help="longest answer (default 64)")
    args = p.parse_args(argv)
    if args.steps < 1 or args.answer_tokens < 1 or args.threads is not None and args.threads < 1:
        p.error("--steps, --answer-tokens and --threads are at least 1")
    if args.only and not (args.prompt or args.prompts or args.ids):
        p.error("--only needs --prompt, --prompts or --ids")
    return args


def main(argv):
    """Do what the command line says."""
    args = arguments(argv)
    # Whatever can be wrong is looked at before gigabytes are read.
    prompts = [*(() if args.only else golden.PUBLISHED), *args.prompt]
    prompts += golden.read_prompts(args.prompts) if args.prompts else []
    prompts += [golden.parse_ids(ids) for ids in args.ids]
    questions = golden.read_questions(args.questions) if args.questions else None
    for name in ("golden.json", "golden.safetensors", "questions.jsonl"):
        if (args.out / name).exists():
            raise Problem(f"{args.out / name} exists already: remove it, or choose another folder")
    args.out.mkdir(parents=True, exist_ok=True)

    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    if args.threads:
        torch.set_num_threads(args.threads)
    checkpoint = checkpoints.Checkpoint(checkpoints.folder(args.checkpoint, args.revision))
    checkpoints.check(checkpoint, dtype=args.dtype, grid=args.grid, low_memory=args.low_memory)
    kv = args.kv or ("int8" if checkpoint.has_int8_cache() else "float")
    if kv == "int8" and not checkpoint.has_int8_cache():
        raise Problem("the checkpoint has no scales for an int8 cache: use --kv float")
    text = golden.Text(checkpoint.path) if questions or any(isinstance(p, str) for p in prompts) else None
    ids = [text.prompt(p) if isinstance(p, str) else p for p in prompts]
    asked = [text.prompt(q["question"]) for q in questions or ()]
    shape = checkpoint.config["text_config"]
    golden.check_ids(ids, args.steps, shape["vocab_size"], shape["max_position_embeddings"])
    golden.check_ids(asked, args.answer_tokens, shape["vocab_size"], shape["max_position_embeddings"])

    say("reading the source files")
    source = checkpoints.source(checkpoint.path)
    model = checkpoints.load(
        checkpoint, dtype=args.dtype, grid=args.grid, activations=args.activations, low_memory=args.low_memory, device=args.device
    )
    decoder = golden.Decoder(model, checkpoints.caches(checkpoint, model, kv))
    runs, tensors = [], {}
    for i, prompt in enumerate(ids):
        began = time.monotonic()
        hidden = args.hidden and i == 0
        entry, found = golden.run(decoder, prompt, args.steps, logits=args.logits, hidden=hidden)
        runs.append(entry)
        tensors.update({f"{name}.{i}": t for name, t in found.items()})
        say(f"run {i + 1} of {len(ids)}: {len(prompt)} and {args.steps} tokens in {time.monotonic() - began:.1f} s")
    right = 0
    for i, (q, prompt) in enumerate(zip(questions or (), asked)):
        q["reference"] = text.decode(golden.answer(decoder, prompt, checkpoint.stop_ids(), args.answer_tokens))
        right += q["reference"] == q["expected"]
        say(f"question {i + 1} of {len(asked)}, {right} answered exactly")
    rounding = args.activations if checkpoint.rounds else "float"
    about = {
        "note": f"{args.dtype}, {rounding} activations, {kv} cache, {args.grid} grid; torch {torch.__version__}, transformers {transformers.__version__}",
        "grid": args.grid,
        "source": source,
    }
    golden.write(args.out, about, runs, tensors, questions)
    say(f"wrote {args.out}: {sum(f.stat().st_size for f in args.out.glob('*')) / 1e6:.1f} MB")


def say(line):
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
