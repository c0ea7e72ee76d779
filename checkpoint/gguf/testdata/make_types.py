"""Writes types.gguf, a file with a tensor of every type that is decoded and a value of
every type of the metadata, and types.f32, the values of all numbers of all tensors in
the order of the file, as float32, little-endian. Both come from the format's own Python
package, gguf 0.19.0 (with numpy 2.4.6), and from nothing of this project.

    python make_types.py

It writes the same bytes each time.
"""

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
rng = np.random.default_rng(1)
w = gguf.GGUFWriter("types.gguf", "types")
w.add_custom_alignment(64)
w.add_uint8("u8", 200)
w.add_int8("i8", -3)
w.add_uint16("u16", 60000)
w.add_int16("i16", -300)
w.add_uint32("u32", 4000000000)
w.add_int32("i32", -70000)
w.add_uint64("u64", 1 << 63)
w.add_int64("i64", -(1 << 40))
w.add_float32("f32", 0.25)
w.add_float64("f64", 0.1)
w.add_bool("yes", True)
w.add_bool("no", False)
w.add_string("text", "▁é\n")
w.add_array("ints", [1, -2, 3])
w.add_array("floats", [0.5, -0.5])
w.add_array("bools", [True, False, True])
w.add_array("texts", ["a", "", "ccc"])
w.add_array("nested", [[1, 2], [3]])

values = b""


def add(data, qtype):
    """Adds a tensor that has the name of its type, and appends its values."""
    global values
    values += gguf.dequantize(data, qtype).astype("<f4").tobytes()
    w.add_tensor(qtype.name.lower(), data, raw_dtype=qtype)


x = (rng.standard_normal((3, 64)) * 0.05).astype(np.float32)
x[1, 32:] = 0  # a block of zeros
x[2, 5] = 3  # a block of one large number
for t in (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0):
    add(gguf.quantize(x, t), t)
# The package cannot quantise to these: all codes, scales and minimums are random.
for t, halves in ((T.Q4_K, (0, 2)), (T.Q5_K, (0, 2)), (T.Q6_K, (208,))):
    _, size = gguf.GGML_QUANT_SIZES[t]
    b = rng.integers(0, 256, (2, 2, size), dtype=np.uint8)
    for at in halves:
        half = (rng.standard_normal((2, 2)) * 0.01).astype(np.float16)
        b[:, :, at : at + 2] = half[..., None].view(np.uint8)
    add(b.reshape(2, -1), t)
# A tensor that is not read, of three dimensions.
w.add_tensor("i32", np.arange(24, dtype=np.int32).reshape(2, 3, 4))

w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
open("types.f32", "wb").write(values)
