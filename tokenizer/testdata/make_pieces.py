"""Make pieces.json and pieces.jsonl.gz, the reference values for SentencePiece vocabularies.

Usage: pip install sentencepiece==0.2.0 protobuf && python3 make_pieces.py

pieces.json lists [text, score, type] by id: a small vocabulary that SentencePiece has
trained on this script and make_golden.py, with runs that overlap themselves added. Each
row of the golden file has the fields of golden.jsonl.gz: text; plain, SentencePiece's ids;
ids, the same from a copy of the vocabulary in which control pieces are user-defined, that
is, found in every text; and decoded.
"""
import gzip
import json
import random
from pathlib import Path

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = Path(__file__).parent
SPACE = "\u2581"
USER = ["\n", "\n\n", "\n\n\n", "\t", "\t\t", SPACE * 2, SPACE * 3, SPACE * 5, "<b>", "</b>", "<br>", "–" + SPACE, SPACE + SPACE + "–"]
CONTROL = ["<mask>", "<turn>", "<turn>s", "<end" + SPACE + "turn>", "<unused0>"]


def train():
    """Trains the vocabulary and adds to it."""
    lines = [line for name in ("make_pieces.py", "make_golden.py") for line in (HERE / name).read_text().split("\n") if line.strip()]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix="/tmp/pieces", model_type="bpe", vocab_size=640, byte_fallback=True, num_threads=1,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, character_coverage=0.995, minloglevel=2,
        user_defined_symbols=USER, control_symbols=CONTROL, pad_id=0, eos_id=1, bos_id=2, unk_id=3, split_by_whitespace=False)
    m = pb.ModelProto()
    m.ParseFromString(Path("/tmp/pieces.model").read_bytes())
    have = {p.piece for p in m.pieces}
    for i, piece in enumerate(["aa", "aaa", "aaaaa", "aab", "baa", "abaa", "ab", "aba", "bab", "ba", "<un", "<unused", "0>", "u>", SPACE + SPACE + "a", "<t", "tu"]):
        if piece not in have:
            p = m.pieces.add()
            p.piece, p.score, p.type = piece, -3.5 - (i * 7 % 17), 1
    return m


def processor(m):
    """Returns an encoder."""
    return spm.SentencePieceProcessor(model_proto=m.SerializeToString())


def main():
    """Writes both files."""
    m = train()
    # In user-defined pieces GGUF files have spaces.
    pieces = [[p.piece.replace(SPACE, " ") if p.type == 4 else p.piece, p.score, p.type] for p in m.pieces]
    with open(HERE / "pieces.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(p, ensure_ascii=False) for p in pieces) + "\n]\n")
    marked = pb.ModelProto()
    marked.CopyFrom(m)
    for p in marked.pieces:
        if p.type == 3:
            p.type = 4
        if p.type == 2:  # there must be one, so another one takes its place
            p.type = 4
    u = marked.pieces.add()
    u.piece, u.type = "\ue000", 2
    marked.trainer_spec.unk_surface = ""
    marked.trainer_spec.unk_id = len(marked.pieces) - 1
    plain, ids = processor(m), processor(marked)

    rng = random.Random(3)
    normal = [p.piece for p in m.pieces if p.type == 1]
    special = [p.piece for p in m.pieces if p.type in (2, 3, 4)]
    texts = ["", " ", "a", "<0x41>", "<turn>", "漢字", "é\u0301", "\u2581", "\u2581 \u2581", "x\u2581y  z", "\ufffd", "🙂\u200d", "–", "a–\u2581\u2581\u2581–  "]
    texts += special + ["x" + s + "y" for s in special] + [s * 2 for s in special] + [s[:-1] for s in special] + [s[1:] for s in special]
    for c in ["a", "b", " ", "\n", "ab", "aab", "\u2581", "\u2581 ", " –"]:
        texts += [c * n for n in (2, 3, 4, 5, 6, 7, 8, 13, 40)]
    for _ in range(200):
        texts.append("".join(rng.choice("ab") for _ in range(rng.randint(3, 60))))
        texts.append("".join(rng.choice("ab <>/\n\u2581–e") for _ in range(rng.randint(3, 40))))
        texts.append("".join(rng.choice(rng.choice([normal, normal, special])) for _ in range(rng.randint(2, 12))))
        texts.append("".join(chr(rng.choice([rng.randint(32, 126), rng.randint(0xA0, 0x2FF), rng.randint(0x2000, 0x33FF), rng.randint(0x1F300, 0x1F6FF)])) for _ in range(rng.randint(1, 20))))
    texts += [line for line in (HERE / "make_golden.py").read_text().split("\n")[::3]]
    with gzip.GzipFile(HERE / "pieces.jsonl.gz", "wb", mtime=0) as f:
        for text in dict.fromkeys(texts):
            row = {"text": text, "ids": ids.encode(text), "plain": plain.encode(text), "decoded": text.replace(SPACE, " ")}
            f.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


main()
