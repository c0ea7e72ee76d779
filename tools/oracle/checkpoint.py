"""Folders with Gemma 4 checkpoints, and the models that transformers makes of them."""

import contextlib
import hashlib
import json
from pathlib import Path

import grids

# What is fetched when a checkpoint is given by its name on the hub.
WANTED = ("*.json", "*.jinja", "*.safetensors")
# Rows of a matrix that are unpacked at a time, so that a head of 262,144 rows needs no second copy of itself.
ROWS = 16384


class Problem(Exception):
    """Something that the person at the command line can put right."""


def folder(name, revision=None):
    """The local folder of a checkpoint; a name that is no folder is fetched from the hub."""
    path = Path(name)
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith(".") or name.count("/") != 1:
        raise Problem(f"{name!r} is neither a folder nor a name such as google/gemma-4-E2B-it")
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(WANTED)))
    except Exception as error:  # its errors have no common base
        raise Problem(f"{name!r} is no folder here and cannot be fetched: {error}") from error


def weight_files(path):
    """The names of the files with weights, as the index lists them."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index)["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    missing = [n for n in names if not (path / n).is_file()]
    if missing:
        raise Problem(f"{path} lacks {', '.join(missing)}")
    return names


def read_json(path):
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(f"there is no {path}") from None
    except ValueError as error:
        raise Problem(f"{path} is not JSON: {error}") from error


def source(path):
    """Path, size and sha256 of the files that decide the values, as `zoo` records them."""
    files = []
    for name in ["config.json", *weight_files(path)]:
        digest = hashlib.sha256()
        with open(path / name, "rb") as f:
            while piece := f.read(1 << 22):
                digest.update(piece)
        files.append({"path": name, "size": (path / name).stat().st_size, "sha256": digest.hexdigest()})
    return files


class Checkpoint:
    """A checkpoint's folder with what is read of it beside transformers."""

    def __init__(self, path):
        from safetensors import safe_open

        self.path = path
        self.config = read_json(path / "config.json")
        if self.config.get("model_type") != "gemma4" or "text_config" not in self.config:
            raise Problem(f"{path} holds a model of type {self.config.get('model_type')!r}, not gemma4")
        self.packed = "quantization_config" in self.config
        self.scale_columns = {}  # of packed tables, by module
        self.cache_scales = {}  # {layer: [k, v]}
        self.rounds = False  # whether some activation scale is not 0
        for name in weight_files(path):
            try:
                with safe_open(path / name, framework="pt") as f:
                    for key in f.keys():
                        self._look(f, key)
            except (OSError, RuntimeError) as error:
                raise Problem(f"{path / name}: {error}") from error
            except Exception as error:
                raise Problem(f"{path / name} is not a safetensors file: {error}") from error

    def _look(self, f, key):
        module, _, last = key.rpartition(".")
        if last == "embedding_scale":
            self.scale_columns[module] = f.get_slice(key).get_shape()[-1]
        elif last in ("k_cache_scale", "v_cache_scale") and ".layers." in key:
            layer = int(key.split(".layers.")[1].split(".")[0])
            self.cache_scales.setdefault(layer, [0.0, 0.0])[last == "v_cache_scale"] = f.get_tensor(key).item()
        elif last in ("input_activation_scale", "output_activation_scale") and "language_model" in key:
            self.rounds = self.rounds or f.get_tensor(key).item() != 0

    def has_int8_cache(self):
        """Whether every layer with a cache of its own has scales for it."""
        text = self.config["text_config"]
        own = text["num_hidden_layers"] - text.get("num_kv_shared_layers", 0)
        return all(0.0 not in self.cache_scales.get(layer, [0.0]) for layer in range(own))

    def stop_ids(self):
        """The tokens that end an answer."""
        path = self.path / "generation_config.json"
        known = read_json(path) if path.is_file() else self.config
        ids = known.get("eos_token_id", self.config.get("eos_token_id"))
        return set(ids if isinstance(ids, list) else [ids])


@contextlib.contextmanager
def table_scales(columns):
    """Within it, transformers gives tables as many scales a row as the checkpoint has.

    It knows one a row; the per-layer table has one for each layer and row.
    """
    import torch
    from transformers.integrations import gemma_quant

    original = gemma_quant.replace_with_quant_layers

    def replace(model, *args, **kwargs):
        model = original(model, *args, **kwargs)
        for name, module in model.named_modules():
            if isinstance(module, gemma_quant.QuantizedEmbedding) and columns.get(name, 1) != 1:
                old = module.embedding_scale
                shape = (module.num_embeddings, columns[name])
                module.embedding_scale = torch.nn.Parameter(torch.ones(shape, dtype=old.dtype, device=old.device), requires_grad=False)
        return model

    gemma_quant.replace_with_quant_layers = replace
    try:
        yield
    finally:
        gemma_quant.replace_with_quant_layers = original


def check(checkpoint, *, dtype="float32", grid="none", low_memory=False):
    """Refuse arithmetic that a checkpoint cannot have, before all of it is read."""
    if checkpoint.packed and grid != "none":
        raise Problem(f"the weights are packed codes already: --grid {grid} is for bfloat16 checkpoints")
    if low_memory and dtype != "float32":
        raise Problem("--low-memory keeps float32 arithmetic: leave out --dtype")


def load(checkpoint, *, dtype="float32", grid="none", activations="static", low_memory=False, device="cpu"):
    """The model, with its text part alone and the arithmetic that was asked for, which check has passed."""
    import torch
    from transformers import AutoConfig, Gemma4ForCausalLM, Gemma4ForConditionalGeneration

    config = AutoConfig.from_pretrained(checkpoint.path, local_files_only=True)
    config.vision_config = config.audio_config = None  # text needs neither tower
    stored = torch.bfloat16 if dtype == "bfloat16" or low_memory and not checkpoint.packed else torch.float32
    with table_scales(checkpoint.scale_columns):
        whole, report = Gemma4ForConditionalGeneration.from_pretrained(
            checkpoint.path, config=config, dtype=stored, attn_implementation="eager", local_files_only=True, output_loading_info=True
        )
    # A weight that the files lack would be random.
    missing = [k for k in report["missing_keys"] if not (k == "lm_head.weight" and checkpoint.config.get("tie_word_embeddings", True))]
    wrong = missing + [str(k) for k in report.get("mismatched_keys", [])]
    if wrong:
        raise Problem(f"the checkpoint lacks, or has in another shape, {len(wrong)} tensors, such as {sorted(wrong)[0]}")
    # Files are laid out for the model with towers, which at every step unpacks a whole table to look at its row of padding.
    with torch.device("meta"):
        model = Gemma4ForCausalLM(whole.config.text_config)
    model.model, model.lm_head = whole.model.language_model, whole.lm_head
    model.eval().requires_grad_(False)
    if checkpoint.packed:
        prepare_packed(model, activations, low_memory)
    elif low_memory:
        store_small(model, grid)
    elif grid != "none":
        round_weights(model, grid)
    return model.to(device)


def prepare_packed(model, activations, low_memory):
    """Switch rounding of activations off, and unpack weights once, as asked."""
    import torch
    from transformers.integrations.gemma_quant import QuantizedLinear

    for module in model.modules():
        if not isinstance(module, QuantizedLinear):
            continue
        if activations == "float":
            module.input_activation_scale.zero_()
            module.output_activation_scale.zero_()
        if not low_memory:
            # What it would unpack at every step.
            module.register_buffer("unpacked", module._dequantize_weights(model.dtype), persistent=False)
            module._dequantize_weights = lambda dtype=None, module=module: module.unpacked
            module.weight = torch.nn.Parameter(torch.empty(0, dtype=torch.uint8), requires_grad=False)


def matrices(model):
    """(parent, name, module) of each linear layer and table that has a grid in packs."""
    from torch import nn

    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, (nn.Linear, nn.Embedding)) and name != "per_layer_model_projection":
                yield parent, name, module


def round_weights(model, grid):
    """Put the weights on a grid, in place. A tied head is the table's tensor and is rounded once."""
    done = set()
    for _, name, module in matrices(model):
        weight = module.weight
        if weight.data_ptr() in done:
            continue
        done.add(weight.data_ptr())
        for first in range(0, weight.shape[0], ROWS):
            rows = weight[first : first + ROWS]
            rows.copy_(grids.values(*on_grid(rows, grid, name)))


def on_grid(rows, grid, name):
    """codes_and_scales with an error that names the matrix."""
    try:
        return grids.codes_and_scales(rows, grid)
    except ValueError as error:
        raise Problem(f"{name}: {error}") from error


def store_small(model, grid):
    """Keep weights as the files have them, or as codes of a grid, and widen them where they are used.

    The values are those of float32 weights; they take half the memory, or a fourth.
    """
    import torch
    from torch import nn

    class Small(nn.Module):
        """A matrix that is kept small."""

        def __init__(self, module, name):
            super().__init__()
            weight = module.weight.data
            if grid == "none" or name == "per_layer_model_projection":
                self.register_buffer("weight", weight)
                self.scales = None
            else:
                parts = [on_grid(weight[i : i + ROWS], grid, name) for i in range(0, weight.shape[0], ROWS)]
                self.register_buffer("weight", torch.cat([codes for codes, _ in parts]))
                self.register_buffer("scales", torch.cat([scales for _, scales in parts]))

        def rows(self, which):
            """Some rows in float32."""
            if self.scales is None:
                return self.weight[which].float()
            return grids.values(self.weight[which], self.scales[which])

    class Linear(nn.Module):
        def __init__(self, small):
            super().__init__()
            self.small = small

        def forward(self, x):
            count = self.small.weight.shape[0]
            parts = [nn.functional.linear(x, self.small.rows(slice(i, i + ROWS))) for i in range(0, count, ROWS)]
            return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    class Table(nn.Module):
        def __init__(self, small, scale):
            super().__init__()
            self.small = small
            self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))

        def forward(self, ids):
            return self.small.rows(ids.reshape(-1)).reshape(*ids.shape, -1) * self.scale

    made = {}  # by the address of the weights, which a tied head shares with the table
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if not isinstance(module, (nn.Linear, nn.Embedding)):
                continue
            address = module.weight.data_ptr()
            if address not in made:
                made[address] = Small(module, name)
            small = made[address]
            new = Linear(small) if isinstance(module, nn.Linear) else Table(small, module.scalar_embed_scale)
            setattr(parent, name, new)
            if grid != "none":
                module.weight = None  # so that one matrix at a time is there twice
    # All that is left is small: norms and scalars.
    for module in model.modules():
        if not isinstance(module, Small):
            for tensors in (module._parameters, module._buffers):
                for key, t in tensors.items():
                    if t is not None and t.is_floating_point():
                        t.data = t.data.float()


def caches(checkpoint, model, kv):
    """A function that makes an empty cache, which keeps what is stored on the int8 grid if asked."""
    from transformers.cache_utils import DynamicCache

    config = model.config.get_text_config()
    if kv == "float":
        return lambda: DynamicCache(config=config)
    if not checkpoint.has_int8_cache():
        raise Problem("the checkpoint has no scales for an int8 cache: use --kv float")
    scales = checkpoint.cache_scales

    def on_grid(x, scale):
        return (x / scale).round().clamp(-128, 127) * scale

    class Int8Cache(DynamicCache):
        def update(self, keys, values, layer, *args, **kwargs):
            k, v = scales[layer]
            return super().update(on_grid(keys, k), on_grid(values, v), layer, *args, **kwargs)

    return lambda: Int8Cache(config=config)
