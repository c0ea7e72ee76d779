"""Tests of the oracle: python3 -m unittest discover tools/oracle

Those that need torch, and a checkpoint, are skipped where there is none. ZOO_ORACLE_REFERENCE
may name a folder with checkpoints and their golden files; each is made again and compared.
"""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import checkpoint
import golden
import grids
import oracle

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipUnless(torch, "needs torch")


class Folder(unittest.TestCase):
    """A test with a temporary folder."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = Path(temporary.name)

    def file(self, name, text):
        (self.dir / name).write_text(text, encoding="utf-8")
        return self.dir / name


class Reading(Folder):
    def test_ids(self):
        for text, want in {"2": [2], "2,105, 7": [2, 105, 7], "[2, 3]": [2, 3], " 4 5 ": [4, 5]}.items():
            self.assertEqual(golden.parse_ids(text), want)
        for text in ("", "[]", "2,-1", "a", "2.5"):
            with self.assertRaises(checkpoint.Problem):
                golden.parse_ids(text)

    def test_prompts(self):
        file = self.file("prompts", "What is a river?\n\n[2, 105]\n")
        self.assertEqual(golden.read_prompts(file), ["What is a river?", [2, 105]])
        with self.assertRaisesRegex(checkpoint.Problem, "no prompts"):
            golden.read_prompts(self.file("none", "\n"))
        with self.assertRaises(checkpoint.Problem):
            golden.read_prompts(self.dir / "missing")

    def test_questions(self):
        file = self.file("q.jsonl", '{"question": "1+1?", "expected": "2", "note": 1}\n\n{"question": "a\u2028b", "expected": "c"}')
        self.assertEqual(golden.read_questions(file), [{"question": "1+1?", "expected": "2"}, {"question": "a\u2028b", "expected": "c"}])
        for text, problem in {"": "no questions", "{": "line 1 is not JSON", '{"question": "a"}': "line 1 is not an object", "[1]": "line 1"}.items():
            with self.assertRaisesRegex(checkpoint.Problem, problem):
                golden.read_questions(self.file("bad", text))

    def test_limits(self):
        golden.check_ids([[1, 2]], 3, 10, 5)
        for ids, steps in (([10], 1), ([1, 2], 4)):
            with self.assertRaises(checkpoint.Problem):
                golden.check_ids([ids], steps, 10, 5)

    def test_command_line(self):
        for argv in (["c"], ["c", "-o", "o", "--only"], ["c", "-o", "o", "--steps", "0"], ["c", "-o", "o", "--grid", "int3"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                oracle.arguments(argv)

    def test_finished_folder_is_kept(self):
        self.file("golden.json", "{}")
        with self.assertRaisesRegex(checkpoint.Problem, "exists already"):
            oracle.main(["checkpoint", "-o", str(self.dir)])

    def test_arithmetic(self):
        """What cannot be is refused before the weights are read."""
        for packed, flags, problem in (
            (True, ["--grid", "q4_0"], "packed codes already"),
            (False, ["--low-memory", "--dtype", "bfloat16"], "leave out --dtype"),
            (False, [], "read"),
            (False, ["--grid", "q4_0", "--low-memory"], "read"),
            (True, ["--low-memory"], "read"),
        ):
            opened = mock.Mock(packed=packed, config={"text_config": {"vocab_size": 10, "max_position_embeddings": 100}})
            read = mock.Mock(side_effect=checkpoint.Problem("read"))
            with (
                self.subTest(packed=packed, flags=flags),
                mock.patch.dict(sys.modules, torch=mock.Mock(), transformers=mock.Mock()),
                mock.patch.multiple(checkpoint, Checkpoint=lambda path: opened, source=read),
                contextlib.redirect_stderr(io.StringIO()),
                self.assertRaisesRegex(checkpoint.Problem, problem),
            ):
                oracle.main([str(self.dir), "-o", str(self.dir / "out"), "--only", "--ids", "2", *flags])

    def test_source(self):
        self.file("config.json", "{}")
        with self.assertRaisesRegex(checkpoint.Problem, "lacks model.safetensors"):
            checkpoint.source(self.dir)
        self.file("model.safetensors.index.json", '{"weight_map": {"a": "s-2", "b": "s-1", "c": "s-2"}}')
        self.file("s-1", "x")
        self.file("s-2", "")
        got = checkpoint.source(self.dir)
        self.assertEqual([(f["path"], f["size"]) for f in got], [("config.json", 2), ("s-1", 1), ("s-2", 0)])
        self.assertEqual(got[2]["sha256"], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")

    def test_names(self):
        self.assertEqual(checkpoint.folder(str(self.dir)), self.dir)
        for name in ("./missing", "/missing", "missing", "a/b/c"):
            with self.assertRaisesRegex(checkpoint.Problem, "neither a folder"):
                checkpoint.folder(name)


@needs_torch
class Grids(unittest.TestCase):
    def test_q4_0(self):
        row = torch.zeros(1, 64)
        row[0, :4] = torch.tensor([4.0, -4.0, 1.0, -0.26])
        codes, scales = grids.codes_and_scales(row, "q4_0")
        # The first of the two largest decides: d = 4 / -8.
        self.assertEqual(scales.tolist(), [[-0.5, 0.0]])
        self.assertEqual(codes[0, :5].tolist(), [-8, 7, -2, 1, 0])
        self.assertEqual(grids.values(codes, scales)[0, :5].tolist(), [4.0, -3.5, 1.0, -0.5, 0.0])
        self.assertEqual(grids.values(codes, scales)[0, 32:].abs().max(), 0)

    def test_absmax7(self):
        row = torch.zeros(1, 32)
        row[0, :5] = torch.tensor([7.0, -7.0, 2.5, 3.5, -0.5])
        codes, scales = grids.codes_and_scales(row, "absmax7")
        self.assertEqual(scales.tolist(), [[1.0]])
        self.assertEqual(codes[0, :5].tolist(), [7, -7, 2, 4, 0])  # halves go to even

    def test_scales_are_rounded_after_the_codes(self):
        row = torch.full((1, 32), 1 / 3)
        codes, scales = grids.codes_and_scales(row, "absmax7")
        self.assertEqual(codes.unique().tolist(), [7])
        self.assertEqual(scales[0, 0], torch.tensor(1 / 3 / 7).half())

    def test_refusals(self):
        for weight, grid in ((torch.zeros(1, 33), "q4_0"), (torch.zeros(1, 32), "q5"), (torch.full((1, 32), 1e6), "q4_0")):
            with self.assertRaises(ValueError):
                grids.codes_and_scales(weight, grid)


@needs_torch
class Files(Folder):
    def test_write(self):
        runs = [{"prompt": [2], "greedy": [3], "margin": [0.5]}]
        tensors = {"logits.0": torch.ones(1, 4), "last_logits.0": torch.zeros(4)}
        golden.write(self.dir, {"note": "n"}, runs, tensors, [{"question": "é?", "expected": "a", "reference": "b"}])
        self.assertEqual(sorted(os.listdir(self.dir)), ["golden.json", "golden.safetensors", "questions.jsonl"])
        self.assertEqual(golden.read(self.dir), {"note": "n", "runs": runs})
        data = (self.dir / "golden.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        self.assertEqual({k: (v["dtype"], v["shape"]) for k, v in header.items()}, {"logits.0": ("F32", [1, 4]), "last_logits.0": ("F32", [4])})
        self.assertIn("é?", (self.dir / "questions.jsonl").read_text(encoding="utf-8"))

    def test_no_tensors(self):
        golden.write(self.dir, {}, [], {}, None)
        data = (self.dir / "golden.safetensors").read_bytes()
        self.assertEqual(json.loads(data[8:]), {})


@needs_torch
@unittest.skipUnless(os.environ.get("ZOO_ORACLE_REFERENCE"), "needs ZOO_ORACLE_REFERENCE")
class Again(Folder):
    """Golden files that were made by other code are made again."""

    CASES = (
        ("checkpoints/e2b-tiny", "golden", ["--kv", "float"]),
        ("checkpoints/e2b-tiny", "golden_int8kv", []),
        ("checkpoints/e2b-tiny-srq", "golden", ["--kv", "float"]),
        ("checkpoints/e2b-tiny-srq", "golden_int8kv", []),
        ("checkpoints/e4b-tiny", "golden", []),
        ("checkpoints/e4b-tiny", "golden_q4_0", ["--grid", "q4_0"]),
        ("checkpoints/e4b-tiny", "golden_absmax7", ["--grid", "absmax7"]),
        ("checkpoints/e4b-tiny", "golden_absmax7", ["--grid", "absmax7", "--low-memory"]),
        ("demo", "golden", ["--kv", "float"]),
    )

    def test_again(self):
        from safetensors.torch import load_file

        root = Path(os.environ["ZOO_ORACLE_REFERENCE"])
        for n, (folder, name, flags) in enumerate(self.CASES):
            with self.subTest(folder=folder, name=name, flags=flags):
                want = json.loads((root / folder / f"{name}.json").read_text(encoding="utf-8"))["runs"]
                ids = [flag for run in want for flag in ("--ids", ",".join(map(str, run["prompt"])))]
                out = self.dir / str(n)
                with contextlib.redirect_stderr(io.StringIO()):
                    oracle.main([str(root / folder), "-o", str(out), "--only", "--hidden", *ids, *flags])
                for got, run in zip(golden.read(out)["runs"], want, strict=True):
                    self.assertEqual(got["prompt"], run["prompt"])
                    self.assertEqual(got["greedy"], run["greedy"])
                got = load_file(out / "golden.safetensors")
                for key, tensor in load_file(root / folder / f"{name}.safetensors").items():
                    # Products are summed in another order on another number of threads.
                    self.assertLess((got[key] - tensor).abs().max(), 2e-4 * tensor.abs().max(), key)


if __name__ == "__main__":
    unittest.main()
