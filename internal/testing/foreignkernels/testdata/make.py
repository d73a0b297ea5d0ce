"""Writes the PTX of internal/testing/foreignkernels again: python make.py [DIR]

It needs no GPU. pip install triton==3.9.0 nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-crt==13.5.37
nvidia-cuda-runtime==13.5.37 nvidia-cuda-cccl==13.3.5.0.6 nvidia-cutlass==4.2.0.0
"""
import glob
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_kernels as K

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "ptx")
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
os.makedirs(OUT, exist_ok=True)


def write(name, text, head):
    """Without what is there for debuggers and differs between machines."""
    text = re.sub(r"(?s)\t?\.section\s+\.debug.*?\n\t?\}\n", "", text)
    text = re.sub(r"(?m)^\s*(\.loc|\.file)\b.*\n", "", text)
    text = re.sub(r"(?m)^\$L__(tmp|func_begin|func_end|info_string)\w*:\n", "", text)
    text = re.sub(r"(?m)[ \t]+(//.*)?$", "", text)
    text = re.sub(r"(?m)^\s*//.*\n", "", text)
    text = re.sub(r"(?m)^\.global \.align 1 \.b8 _ZN\S+\[1\];\n", "", text)  # CuTe's names for placeholders
    text = re.sub(r"\n{2,}", "\n", text)
    with open(os.path.join(OUT, name + ".ptx"), "w") as f:
        f.write("// " + head + "\n" + text.lstrip("\n"))
    print(name, len(text), flush=True)


def compile(name, kernel, pointers, numbers, constants, sm, warps=4, stages=2, multiples=()):
    """pointers and numbers are types by argument; multiples: the numbers that are multiples of 16, as all addresses are."""
    if ONLY not in name:
        return
    names = kernel.arg_names
    types = {**{n: "*" + t for n, t in pointers.items()}, **numbers, **{n: "constexpr" for n in constants}}
    attrs = {(names.index(n),): [["tt.divisibility", 16]] for n in [*pointers, *multiples]}
    source = ASTSource(fn=kernel, signature={n: types[n] for n in names}, constexprs={(names.index(n),): v for n, v in constants.items()}, attrs=attrs)
    built = triton.compile(source, target=GPUTarget("cuda", sm, 32), options={"num_warps": warps, "num_stages": stages})
    m = built.metadata
    assert not getattr(m, "global_scratch_size", 0) and not getattr(m, "profile_scratch_size", 0), name
    write("triton_" + name, built.asm["ptx"], f"Triton {triton.__version__} of {kernel.__name__} in triton_kernels.py; {m.num_warps} warps, {m.shared} bytes of shared memory")


def product(name, typ, sm, total="fp32", ints="fp32", transposed=False, aligned=True, tile=(32, 32, 32), **options):
    fixed = {"w_depth": 1} if transposed else {"w_column": 1}
    sizes = {n: "i32" for n in ["rows", "columns", "depth", "x_row", "w_depth", "w_column"] if n not in fixed}
    compile(name, K.product, {"x": typ, "w": typ, "y": total}, sizes,
            {**fixed, "ROWS": tile[0], "COLUMNS": tile[1], "DEPTH": tile[2], "SUM": {"fp32": K.tl.float32, "i32": K.tl.int32}[total], "ZERO": 0.0 if total == "fp32" else 0}, sm,
            multiples=[n for n in sizes if aligned], **options)


product("product_f16", "fp16", 80, stages=3)
product("product_f16_new", "fp16", 121, stages=3, tile=(64, 32, 32))
product("product_f16_odd", "fp16", 80, aligned=False)
product("product_f16_turned", "fp16", 80, transposed=True, stages=4)
product("product_bf16", "bf16", 80, stages=3)
product("product_bf16_turned", "bf16", 121, transposed=True, tile=(64, 32, 64))
product("product_e4m3", "fp8e4nv", 121, transposed=True, tile=(32, 32, 64), stages=3)
product("product_e4m3_across", "fp8e4nv", 121, tile=(32, 32, 64))
product("product_e5m2", "fp8e5", 121, transposed=True, tile=(32, 32, 64), stages=3)
product("product_tf32", "fp32", 80, stages=3)
product("product_tf32_new", "fp32", 121, transposed=True)
product("product_s8", "i8", 80, total="i32", transposed=True, tile=(32, 32, 64), stages=3)


def scaled(name, x, w, block, scale, tile, **options):
    stored = {"e2m1": "u8", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
    compile(name, K.scaled, {"x": stored[x], "x_scale": scale, "w": stored[w], "w_scale": scale, "y": "fp32"}, {"columns": "i32", "depth": "i32"},
            {"ROWS": tile[0], "COLUMNS": tile[1], "DEPTH": tile[2], "BLOCK": block, "X": x, "W": w, "X_PACK": 1 + (x == "e2m1"), "W_PACK": 1 + (w == "e2m1")},
            121, multiples=["columns", "depth"], **options)


scaled("nvfp4", "e2m1", "e2m1", 16, "fp8e4nv", (32, 32, 128))
scaled("nvfp4_wide", "e2m1", "e2m1", 16, "fp8e4nv", (64, 64, 64), stages=3)
scaled("nvfp4_small", "e2m1", "e2m1", 16, "fp8e4nv", (16, 32, 128), warps=2, stages=3)
scaled("nvfp4_stored", "e2m1", "e2m1", 16, "fp8e4nv", (128, 64, 64))
scaled("mxfp4", "e2m1", "e2m1", 32, "u8", (32, 32, 128))
scaled("mxfp8_e4m3", "e4m3", "e4m3", 32, "u8", (32, 32, 128))
scaled("mxfp8_e5m2_e4m3", "e5m2", "e4m3", 32, "u8", (32, 32, 128))
scaled("mxfp8_e4m3_e2m1", "e4m3", "e2m1", 32, "u8", (32, 32, 128))

for sm in [80, 121]:
    compile(f"normal_{sm}", K.normal, {"x": "fp16", "gain": "fp32", "y": "fp16"}, {"columns": "i32", "tiny": "fp32"}, {"WIDTH": 512}, sm)
    compile(f"attend_{sm}", K.attend, {"q": "fp16", "k": "fp16", "v": "fp16", "y": "fp16"}, {"tokens": "i32", "factor": "fp32"}, {"Q": 32, "K": 32, "WIDTH": 32}, sm, stages=3)
    compile(f"totals_{sm}", K.totals, {"x": "fp32", "bins": "i32", "sums": "fp32", "counts": "i32"}, {"n": "i32"}, {"WIDTH": 256}, sm)
    compile(f"running_{sm}", K.running, {"x": "fp32", "y": "fp32"}, {"columns": "i32"}, {"WIDTH": 512}, sm)
    compile(f"turn_{sm}", K.turn, {"x": "fp16", "y": "fp16"}, {"rows": "i32", "columns": "i32"}, {"ROWS": 64, "COLUMNS": 32}, sm, multiples=["rows", "columns"])
for name, wide, typ, back, sm in [("e4m3", "fp32", "fp8e4nv", "fp32", 121), ("e5m2", "fp32", "fp8e5", "fp16", 121), ("f16", "fp32", "fp16", "fp32", 80),
                                  ("bf16", "fp32", "bf16", "fp32", 80), ("e4m3_f16", "fp16", "fp8e4nv", "fp16", 121), ("e4m3_bf16", "bf16", "fp8e4nv", "bf16", 121),
                                  ("s8", "fp32", "i8", "fp32", 80), ("s16", "fp32", "i16", "fp32", 80), ("s32", "fp32", "i32", "fp32", 80)]:
    compile("narrow_" + name, K.narrow, {"x": wide, "y": typ, "z": back}, {"n": "i32"}, {"WIDTH": 512}, sm)
compile("soften", K.soften, {"x": "fp32", "y": "fp32"}, {"columns": "i32"}, {"WIDTH": 1024}, 121)
compile("centred", K.centred, {"x": "fp16", "y": "fp16"}, {"columns": "i32"}, {"WIDTH": 512}, 121)
compile("greatest", K.greatest, {"x": "fp32", "place": "i32"}, {"columns": "i32"}, {"WIDTH": 512}, 80)
compile("digits", K.digits, {"x": "i32", "y": "i32"}, {"n": "i32"}, {"WIDTH": 512}, 80)
compile("halves_f16", K.halves, {"x": "fp16", "w": "fp16", "y": "fp16"}, {"n": "i32"}, {"WIDTH": 512}, 80)
compile("halves_bf16", K.halves, {"x": "bf16", "w": "bf16", "y": "bf16"}, {"n": "i32"}, {"WIDTH": 512}, 121)

# nvcc: kernels without its library's code, and CuTe's layouts from its BSD-licensed headers.
site = sysconfig.get_paths()["purelib"]
cuda = glob.glob(os.path.join(site, "nvidia", "cu*"))[0]
include = os.path.join(site, "cutlass_library", "source", "include")


def nvcc(name, source, arch, *defines):
    if ONLY not in name:
        return
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "k.ptx")
        subprocess.run([os.path.join(cuda, "bin", "nvcc"), "-ptx", "-std=c++17", "-w", "-arch=" + arch, "-I" + include, *["-D" + d for d in defines],
                        os.path.join(HERE, source), "-o", out], check=True, env={**os.environ, "PATH": os.environ["PATH"]})
        write(name, open(out).read(), f"nvcc 13.5.37 of {source}")


nvcc("nvcc_plain", "plain.cu", "sm_80")
nvcc("cute_80", "cute.cu", "sm_80")
nvcc("cute_121", "cute.cu", "sm_121a", "NARROW")
