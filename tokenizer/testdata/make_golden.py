"""Make mixed.json and golden.jsonl.gz, the reference values of this package's tests.

Usage: pip install tokenizers==0.23.3 && python3 make_golden.py

demo.json is the tokenizer of the demo checkpoint. mixed.json is made here: a
small vocabulary in which everything happens that the layout allows, such as
merges that build an added token. Each row of the golden file has the name of
its tokenizer and

- text, or base64 when its bytes are not UTF-8 (read with errors="replace");
- ids: encode(add_special_tokens=False);
- plain: the ids when no marker may come out, from a copy of the tokenizer in
  which the markers are no added tokens, cannot be spelled and are no merge;
- decoded: decode(skip_special_tokens=False), visible: the same with True;
- stream: what DecodeStream returned for each id, null where it refused to go on.

Rows without a text are for decoding alone.
"""
import base64
import copy
import gzip
import json
import random
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

HERE = Path(__file__).parent
SPACE = "\u2581"


def mixed():
    """Builds mixed.json."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<unused7>", "\n", "\n\n", "\n\n\n", "\t", SPACE * 2, SPACE * 3,
              "<b>", "<br>", "<br", "</b>", "<start of image>", "ab", "q", "<|turn>", "<turn|>"]
    added = list(pieces)
    pieces += [f"<0x{b:02X}>" for b in range(256)] + ["<0x+a>", "<0xfe>"]
    pieces += list("abcdefghijklmnoprstuvwyz<>/|0123456789.,!") + [SPACE, "é", "ß", "漢", "字", "🙂", "\u200d", "\u0301", "\ufffd", "한", "글"]
    merges = []

    def merge(*parts):
        """Adds the rules that build the parts from left to right."""
        word = parts[0]
        for part in parts[1:]:
            merges.append((word, part))
            word += part
            if word not in pieces:
                pieces.append(word)

    for n in (2, 1):
        for m in range(1, 4 - n):
            merge("\n" * n, "\n" * m)
            merge(SPACE * n, SPACE * m)
    merge(SPACE, "t"), merge("h", "e"), merge(SPACE + "t", "he"), merge(*"ing"), merge(SPACE, "a"), merge("a", "n"), merge("an", "d")
    merge(SPACE + "a", "n", "d"), merge("a", "b"), merge("ab", "c"), merge("b", "c"), merge("a", "bc")  # ab is an added token, a+bc is not
    merge("<", "e", "o", "s", ">"), merge("<eos>", "s"), merge("o", "s"), merge("<", "/"), merge("</", "b"), merge(">", "<")
    merge("<", "0"), merge("|", ">"), merge("<", "|"), merge("t", "u"), merge("tu", "r", "n"), merge("turn", "|>"), merge("<|", "turn")
    merge("<|turn", ">"), merge(">", SPACE), merge(">" + SPACE, "<"), merge("漢", "字"), merge("é", "é"), merge("éé", "éé"), merge("a", "a"), merge("aa", "aa")
    merge("aaaa", "aaaa"), merge("aa", "a"), merge("한", "글"), merge("🙂", "\u200d"), merge("e", "\u0301"), merge("0", "0", "0"), merge("1", "2"), merge("2", "3")
    merges.append(("h", "e"))  # given twice: the last rank counts
    merge("e", "r"), merge("he", "r")
    vocab = {p: i for i, p in enumerate(pieces)}
    special = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<end of image>"}
    outside = ["☃", "<end of image>", "<extra>"]
    tokens = [(vocab[p], p) for p in added] + [(len(pieces) + i, p) for i, p in enumerate(outside)]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": p, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": p in special} for i, p in tokens],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
                  "merges": [" ".join(m) for m in merges]},
    }


def without_markers(spec):
    """Returns a copy of a tokenizer that cannot yield a marker."""
    spec = copy.deepcopy(spec)
    guarded = {t["content"] for t in spec["added_tokens"] if t["special"] or t["content"].replace(SPACE, " ").strip()}
    blocked = guarded | {f"<0x{b:02X}>" for b in range(256)}
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in guarded]
    model = spec["model"]
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    model["merges"] = [list(m) for m in pairs if not blocked & {m[0], m[1], m[0] + m[1]}]
    model["vocab"] = {f"\ue000guarded {i}\ue000" if p in guarded else p: i for p, i in model["vocab"].items()}
    model["unk_token"] = None
    return spec


HAND = ["", " ", "  ", "   ", "    ", "\n", "\n\n\n\n\n", "\t\t", "a", " a", "a ", " a b  c   d", "Hello, world!", "the band and the her", "naïve café", "北京 漢字 漢漢字字",
        "こんにちは", "한글 한국어", "Привет, мир!", "שלום", "नमस्ते", "🙂", "👩‍👩‍👧‍👦", "🙂\u200d🙂", "🇫🇷", "e\u0301", "\u00e9éééé", SPACE, SPACE * 2 + "a", "a" + SPACE + "b", " " + SPACE + " ",
        "\u200b", "\ufeff", "\u00a0", "\r\n", "x\r\ny", "1234567890", "00000000", "<bos>", "<eos>hi", "a<bos>b", "<eos>s", "<eos", "<<eos>>", "<|turn>user\nhi<turn|>\n", "<|turn", "<|turn|>",
        "<turn|>|>", "<unused7>", "<unused70>", "<mask>", "[multimodal]", "<b>", "<br", "<br>", "<bra", "<b", "</b>x</b", "> <", "><> <", "<start of image>", "<start_of image>",
        "<end of image><end of", "<extra>", "☃☃", "ab", "abc", "abcabab", "aabc", "q", "qqa", "<0x41>", "<0xC3><0xA9>", "<0x+a>", "\ufffd", "a\ufffdb", "\ufffd\ufffd", "\x00", "a\x00b", "\x7f",
        "\U0010ffff", "\ue000", "\ud7ff", "a" * 31, "a" * 100, "ab" * 40, "é" * 40, "漢字" * 30, " " * 40, "\n" * 40, "\t" * 35, "<|tool_call>call:f{}<tool_call|>", '<|"|>x<|"|>', "{\"a\": [1, null]}",
        "def f(x):\n    return x ** 2\n", "What is the capital of France?", "The capital of France is **Paris**."]
BROKEN = [b"\xff", b"a\xffb", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x99", b"\xf0\x9f\x99\x82\xf0\x9f", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80",
          b"\xf0\x80\x80\x80", b"\xf0\x90\x80", b"\xf1\x80\xc3\xa9", b"\x80\x80", b"\xc3", b"\xc3\xc3\xa9", b"<e\xe2os>", b"<eos\xc3>", b"\xf5\x80\x80\x80", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"]


def texts(rng, spec, n):
    """Returns n texts for a tokenizer, all of HAND among them."""
    vocab, added = list(spec["model"]["vocab"]), [t["content"] for t in spec["added_tokens"]]
    ranges = [(0x20, 0x7e)] * 5 + [(0, 0x1f), (0xa0, 0x24f), (0x370, 0x5ff), (0x900, 0x97f), (0x1100, 0x11ff), (0x2000, 0x206f), (0x3040, 0x30ff),
                                  (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0xfff0, 0xffff)]
    out = list(HAND)
    while len(out) < n:
        kind, size = rng.random(), rng.randint(1, 14)
        if kind < 0.3:
            out.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(2 * size)))
        elif kind < 0.6:
            out.append("".join(rng.choice(vocab) for _ in range(size)))
        elif kind < 0.8:
            out.append("".join(rng.choice([rng.choice(added), rng.choice(vocab), rng.choice(HAND)]) for _ in range(size)))
        else:
            out.append("".join(rng.choice(["<", ">", "|", "a", "b", "c", "e", "o", "s", "<e", "os>", "turn", "<eos>", " ", "\n", "é", "\u0301", "<b", "r>", "/", "q"])
                               for _ in range(3 * size)))
    return out


def rows(name, spec, rng, n):
    """Yields the rows of a tokenizer."""
    tok, plain = Tokenizer.from_str(json.dumps(spec)), Tokenizer.from_str(json.dumps(without_markers(spec)))

    def decoding(ids):
        stream, parts = DecodeStream(skip_special_tokens=False), []
        try:
            for i in ids:
                parts.append(stream.step(tok, i) or "")
        except Exception:
            parts = None
        return {"ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "visible": tok.decode(ids, skip_special_tokens=True), "stream": parts}

    def encoding(text):
        return {"plain": plain.encode(text, add_special_tokens=False).ids, **decoding(tok.encode(text, add_special_tokens=False).ids)}

    for text in texts(rng, spec, n):
        yield {"tokenizer": name, "text": text, **encoding(text)}
    for raw in BROKEN + [bytes(rng.choice(b"a<\x80\xbf\xc3\xe2\x82\xf0\x9f\x99\xed\xa0\xff") for _ in range(rng.randint(1, 12))) for _ in range(40)]:
        yield {"tokenizer": name, "base64": base64.b64encode(raw).decode(), **encoding(raw.decode(errors="replace"))}
    size = tok.get_vocab_size()
    first = tok.token_to_id("<0x00>")
    # Digits of either case, and a sign, make a byte piece.
    for odd in (["<0x+a>"], ["<0xC3>", "<0xfe>"], ["<0x0A>", "<0x+a>", "<unk>"]):
        if all(tok.token_to_id(p) is not None for p in odd):
            yield {"tokenizer": name, **decoding([tok.token_to_id(p) for p in odd])}
    for _ in range(60):
        kind = rng.random()
        ids = []
        for _ in range(rng.randint(1, 12)):
            if kind < 0.5:  # bytes that nearly make characters
                ids.append(rng.choice([first + b for b in b"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\xff"] + [rng.randrange(size)]))
            else:
                ids.append(rng.randrange(size + 3))
        yield {"tokenizer": name, **decoding(ids)}


if __name__ == "__main__":
    spec = mixed()
    (HERE / "mixed.json").write_text(json.dumps(spec, ensure_ascii=False, indent=1) + "\n")
    rng = random.Random(7)
    with open(HERE / "golden.jsonl.gz", "wb") as f, gzip.GzipFile("", "wb", mtime=0, fileobj=f) as z:
        for name, n in (("demo", 420), ("mixed", 420)):
            for row in rows(name, json.loads((HERE / f"{name}.json").read_text()), rng, n):
                z.write((json.dumps(row) + "\n").encode())
