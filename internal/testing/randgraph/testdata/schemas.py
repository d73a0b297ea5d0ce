"""Prints schemas.txt: what the onnx package says of the inputs of every operator, and of their types, by version.

Each line is an operator's name, the version of its domain since which it is so, its inputs (name:type, with ? for an optional one
and * for the last of a variable number) and the element types that each type variable allows."""
import onnx
from onnx import defs

NAMES = {
    "tensor(bool)": "bool", "tensor(int4)": "i4", "tensor(uint4)": "u4", "tensor(int8)": "i8", "tensor(uint8)": "u8",
    "tensor(int16)": "i16", "tensor(uint16)": "u16", "tensor(int32)": "i32", "tensor(uint32)": "u32", "tensor(int64)": "i64",
    "tensor(uint64)": "u64", "tensor(float16)": "f16", "tensor(bfloat16)": "bf16", "tensor(float)": "f32", "tensor(double)": "f64",
    "tensor(float8e4m3fn)": "e4m3", "tensor(float8e5m2)": "e5m2",
}


def main():
    rows = set()
    for domain, last in (("", 28), ("ai.onnx.ml", 5)):
        for s in defs.get_all_schemas_with_history():
            if s.domain != domain or s.deprecated or s.since_version > last:
                continue
            types = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
            inputs = []
            for i in s.inputs:
                mark = {defs.OpSchema.FormalParameterOption.Optional: "?", defs.OpSchema.FormalParameterOption.Variadic: "*"}.get(i.option, "")
                name = i.type_str
                if name not in types:
                    types[name] = [name]
                inputs.append(f"{i.name}{mark}:{name}")
            allowed = []
            for name, strs in sorted(types.items()):
                known = [NAMES[t] for t in strs if t in NAMES]
                if known and any(i.endswith(":" + name) for i in inputs):
                    allowed.append(f"{name}={','.join(sorted(known))}")
            rows.add((domain, s.name, s.since_version, " ".join(inputs), " ".join(allowed)))
    for domain, name, since, inputs, allowed in sorted(rows):
        print(f"{domain + '.' if domain else ''}{name} {since} | {inputs} | {allowed}")


main()
