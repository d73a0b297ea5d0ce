#!/usr/bin/env python3
"""Write test cases of the installed `onnx` package as test-case directories.

    python nodecases.py DIR           its node cases
    python nodecases.py --light DIR   its `light` models: well-known networks whose weights are constant fills

makes DIR/NAME/model.onnx and DIR/NAME/test_data_set_N/{input,output}_M.pb for each case. The wheel ships the generators
of node cases (onnx.backend.test.case.node), not their files, and of light models the outputs for an input that counts up
from 0 to 1. A case whose directory is complete already is left as it is, so that DIR can serve as a cache;
DIR/onnx-VERSION marks a complete one.
"""

import glob
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

PROTOS = (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto, onnx.MapProto)


def to_proto(value, type_proto, name):
    """The protobuf message of one input or output, of the kind that the model declares."""
    if isinstance(value, PROTOS):
        return value
    kind = type_proto.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, name)
    return numpy_helper.from_array(np.asarray(value), name)


def write_case(case, folder):
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = os.path.join(folder, f"test_data_set_{number}")
        os.makedirs(data, exist_ok=True)
        graph = case.model.graph
        for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for i, value in enumerate(values):
                proto = to_proto(value, infos[i].type, infos[i].name)
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                    f.write(proto.SerializeToString(deterministic=True))
    # Last, so that a directory with a model is complete.
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(case.model.SerializeToString(deterministic=True))


def write_light(out):
    """The light models; inputs are those that onnx/backend/test/runner feeds them."""
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    models = sorted(glob.glob(os.path.join(data, "light_*.onnx")))
    for path in models:
        folder = os.path.join(out, os.path.splitext(os.path.basename(path))[0])
        sets = os.path.join(folder, "test_data_set_0")
        os.makedirs(sets, exist_ok=True)
        graph = onnx.load(path).graph
        constants = {t.name for t in graph.initializer}
        inputs = [i for i in graph.input if i.name not in constants]
        for i, info in enumerate(inputs):
            shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            value = (np.arange(n).reshape(shape) / n).astype(np.float32)
            with open(os.path.join(sets, f"input_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(value, info.name).SerializeToString(deterministic=True))
        for i in range(len(graph.output)):
            shutil.copyfile(path.removesuffix(".onnx") + f"_output_{i}.pb", os.path.join(sets, f"output_{i}.pb"))
        shutil.copyfile(path, os.path.join(folder, "model.onnx"))
    return len(models)


def write_nodes(out):
    cases = collect_testcases(None)
    for case in cases:
        folder = os.path.join(out, case.name)
        if not os.path.exists(os.path.join(folder, "model.onnx")):
            write_case(case, folder)
    return len(cases)


def main():
    args = sys.argv[1:]
    write = write_nodes
    if args[:1] == ["--light"]:
        write, args = write_light, args[1:]
    if len(args) != 1:
        sys.exit(__doc__)
    out = args[0]
    done = os.path.join(out, f"onnx-{onnx.__version__}")
    if os.path.exists(done):
        return
    warnings.simplefilter("ignore")
    count = write(out)
    with open(done, "w") as f:
        f.write(f"{count}\n")
    print(f"{count} cases in {out}")


if __name__ == "__main__":
    main()
