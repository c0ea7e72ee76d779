"""Writes a GGUF file with its weights in float32, by llama.cpp's own quantizer.

    python3 dequantize.py LIBRARIES IN.gguf OUT.gguf

The numbers are the very same; what differs is that llama.cpp, which rounds activations to 8
bits where weights are quantised, then rounds none. LIBRARIES is the folder of llama.cpp's
shared libraries, such as node_modules/@node-llama-cpp/linux-x64/bins/linux-x64.
"""

import ctypes
import pathlib
import sys


class Params(ctypes.Structure):
    """The beginning of llama_model_quantize_params, and room for the rest."""

    _fields_ = [
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int32),
        ("output_tensor_type", ctypes.c_int32),
        ("token_embedding_type", ctypes.c_int32),
        ("allow_requantize", ctypes.c_bool),
        ("rest", ctypes.c_char * 251),
    ]


ALL_F32 = 0  # of enum llama_ftype


def library(folder, name):
    """Loads a library, whose name has a version in some releases."""
    (path,) = [p for p in pathlib.Path(folder).iterdir() if p.name.startswith(f"lib{name}.") and p.suffix in (".so", ".dylib")]
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def main(folder, source, target):
    for name in ("ggml-base", "ggml"):
        library(folder, name)
    llama = library(folder, "llama")
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)
    llama.llama_log_set(quiet, None)
    llama.llama_model_quantize_default_params.restype = Params
    params = llama.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = ALL_F32, True
    code = llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    if code != 0:
        sys.exit(f"llama.cpp does not write {source} in float32: it returns {code}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: dequantize.py LIBRARIES IN.gguf OUT.gguf")
    main(*sys.argv[1:])
