"""The onnx package's side of TestOnnxPackageAgrees: `make DIR` writes models and tensors, `check DIR` compares."""
import base64, json, pathlib, sys
import numpy as np, onnx
from onnx import TensorProto as T, helper, numpy_helper


def packed(array, bits):
    """The elements' bits, little-endian, sub-byte ones lowest first."""
    if bits >= 8:
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    n, mask = 8 // bits, (1 << bits) - 1
    flat = array.flatten().view(np.uint8) & mask
    flat = np.concatenate([flat, np.zeros(-len(flat) % n, np.uint8)]).reshape(-1, n)
    return sum(flat[:, i] << (i * bits) for i in range(n)).astype(np.uint8).tobytes()


BITS = {T.UINT4: 4, T.INT4: 4, T.FLOAT4E2M1: 4, T.UINT2: 2, T.INT2: 2}
FLOATS = [T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT4E2M1]
INTS = [T.INT2, T.UINT2, T.INT4, T.UINT4, T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64]


def tensors():
    for t in FLOATS + INTS + [T.BOOL, T.FLOAT8E8M0]:
        for n in (0, 1, 5, 12):
            rng = np.random.default_rng(n)
            dtype = helper.tensor_dtype_to_np_dtype(t)
            if t == T.FLOAT8E8M0:
                values = 2.0 ** rng.integers(-20, 20, n)
            elif t in FLOATS:
                values = rng.standard_normal(n) * 2
            elif t == T.BOOL:
                values = rng.integers(0, 2, n)
            else:
                bits = BITS.get(t, dtype.itemsize * 8)
                signed = t in (T.INT2, T.INT4, T.INT8, T.INT16, T.INT32, T.INT64)
                values = [int(rng.integers(0, 1 << 63)) % (1 << bits) - ((1 << bits - 1) if signed else 0) for _ in range(n)]
            array = np.array(values).astype(dtype)
            yield t, numpy_helper.from_array(array)
            yield t, helper.make_tensor("typed", t, [n], array)


def make(out):
    from onnx.backend.test.case.node import collect_testcases
    for i, case in enumerate(collect_testcases(None)):
        (out / f"{i}.onnx").write_bytes(case.model.SerializeToString())
    rows = []
    for t, p in tensors():
        array = numpy_helper.to_array(p)
        rows.append({"name": f"{T.DataType.Name(t)} {list(p.dims)} {'raw' if p.HasField('raw_data') else 'typed'}",
                     "proto": base64.b64encode(p.SerializeToString()).decode(),
                     "data": base64.b64encode(packed(array, BITS.get(t, 8))).decode()})
    (out / "tensors.json").write_text(json.dumps(rows))


def check(out):
    wrong = 0
    for again in sorted(out.glob("*.again")):
        want = onnx.ModelProto.FromString(again.with_suffix(".onnx").read_bytes())
        got = onnx.ModelProto.FromString(again.read_bytes())
        if got.SerializeToString(deterministic=True) != want.SerializeToString(deterministic=True):
            print("differs:", again.name)
            wrong += 1
    for built in sorted(out.glob("*.built")):
        onnx.checker.check_model(onnx.ModelProto.FromString(built.read_bytes()), full_check=True)
    sys.exit(wrong > 0)


{"make": make, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
