"""Rounding of weight matrices to the grids that packs keep them in.

Both grids have blocks of 32 weights along a row that share a scale. d and 1/d are
float32 where codes are chosen; what a pack keeps of d, and multiplies with, is float16.
"""

BLOCK = 32
GRIDS = ("q4_0", "absmax7")


def codes_and_scales(weight, grid):
    """Codes (int8, the shape of weight) and scales (float16, [rows, columns / 32])."""
    import torch

    rows, columns = weight.shape
    if columns % BLOCK:
        raise ValueError(f"rows of {columns} weights are not whole blocks of {BLOCK}")
    blocks = weight.float().reshape(rows, columns // BLOCK, BLOCK)
    magnitude = blocks.abs()
    if grid == "q4_0":
        # The first of equally large values: its sign decides which side has the code -8.
        largest = blocks.gather(-1, magnitude.argmax(-1, keepdim=True))
        d = largest / -8
    elif grid == "absmax7":
        d = magnitude.amax(-1, keepdim=True) / 7
    else:
        raise ValueError(f"no grid is named {grid!r}")
    # Not a division by d: that gives other codes now and then.
    inverse = torch.where(d == 0, 0.0, 1 / d)
    scaled = blocks * inverse
    if grid == "q4_0":
        codes = (scaled + 8.5).floor().clamp(0, 15) - 8
    else:
        codes = scaled.round().clamp(-8, 7)
    scales = d.squeeze(-1).half()
    if not scales.isfinite().all():
        raise ValueError("a scale is too large for float16")
    return codes.to(torch.int8).reshape(rows, columns), scales


def values(codes, scales):
    """The float32 weights that codes and scales stand for."""
    rows, columns = codes.shape
    blocks = codes.float().reshape(rows, columns // BLOCK, BLOCK)
    return (blocks * scales.float().unsqueeze(-1)).reshape(rows, columns)
