#!/usr/bin/env python3
"""Write the node cases of the installed `onnx` package as test-case directories.

    python nodecases.py DIR

makes DIR/NAME/model.onnx and DIR/NAME/test_data_set_N/{input,output}_M.pb for each case of
onnx.backend.test.case.node. The wheel ships the generators of these cases, not their files. A case whose directory is
complete already is left as it is, so that DIR can serve as a cache; DIR/onnx-VERSION marks a complete one.
"""

import os
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


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    done = os.path.join(out, f"onnx-{onnx.__version__}")
    if os.path.exists(done):
        return
    warnings.simplefilter("ignore")
    cases = collect_testcases(None)
    for case in cases:
        folder = os.path.join(out, case.name)
        if not os.path.exists(os.path.join(folder, "model.onnx")):
            write_case(case, folder)
    with open(done, "w") as f:
        f.write(f"{len(cases)}\n")
    print(f"{len(cases)} cases in {out}")


if __name__ == "__main__":
    main()
