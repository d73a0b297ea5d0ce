"""The other reader and writer of logs: pycapnp, with the schema that a test makes of the Go types.

peer.py write SCHEMA LOG SEED SEGMENTS   writes messages at random, of every kind, and prints them; SEGMENTS is one, small or tiny
peer.py read SCHEMA LOG                  reads messages and prints them

A message is printed as a line of JSON: floats as their bits, bytes in hexadecimal, nothing of fields that only pad.
"""

import json
import random
import struct
import sys

import capnp

SCALARS = {"bool": 1, "int8": 8, "uint8": 8, "uint16": 16, "int32": 32, "uint32": 32, "uint64": 64}


def fields(schema):
    for name in schema.fieldnames:
        if not name.startswith("pad"):
            yield name, schema.fields[name].proto.slot.type


def plain(value, type):
    """A value as it is printed."""
    kind = type.which()
    if kind == "float32":
        return struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == "data":
        return value.hex()
    if kind == "list":
        return [plain(v, type.list.elementType) for v in value]
    if kind == "struct":
        return {n: plain(getattr(value, n), t) for n, t in fields(value.schema)}
    return value


def show(event):
    kind = event.which()
    value = getattr(event, str(kind))
    type = event.schema.fields[str(kind)].proto.slot.type
    print(json.dumps({"time": event.logMonoTime, "kind": str(kind), "valid": event.valid, "message": plain(value, type)},
                     sort_keys=True, separators=(",", ":")))


def drawn(rng, kind):
    """A scalar at random, at times an extreme one."""
    if kind == "float32":
        return rng.choice([0.0, -0.0, float("inf"), float("nan"), 1e-45, rng.gauss(0, 100)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "text":
        return "".join(rng.choices("abc xyz", k=rng.randrange(9)))
    if kind == "data":
        return rng.randbytes(rng.randrange(20))
    bits = SCALARS[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.startswith("int") else (0, (1 << bits) - 1)
    return rng.choice([0, low, high, rng.randint(low, high)])


def fill(rng, builder):
    """Fills a struct; a fifth of its fields keep their defaults."""
    for name, type in fields(builder.schema):
        if rng.random() < 0.2:
            continue
        if type.which() == "struct":
            fill(rng, builder.init(name))
        elif type.which() == "list":
            fill_list(rng, builder.init(name, rng.randrange(5)), type)
        else:
            setattr(builder, name, drawn(rng, type.which()))


def fill_list(rng, builder, type):
    element = type.list.elementType.which()
    for i in range(len(builder)):
        if element == "struct":
            fill(rng, builder[i])
        else:
            builder[i] = drawn(rng, element)


def write(schema, log, seed, segments):
    rng = random.Random(seed)
    new = {
        "one": lambda: schema.Event.new_message(),
        "small": lambda: schema.Event.new_message(num_first_segment_words=1),
        "tiny": lambda: schema.Event.new_message(num_first_segment_words=1, allocate_seg_callable=lambda words: bytearray(8 * words)),
    }[segments]
    with open(log, "wb") as file:
        for round in range(6):
            for name, type in fields(schema.Event.schema):
                if type.which() not in ("struct", "list"):
                    continue  # time, validity, and kinds that are not read
                event = new()
                event.logMonoTime, event.valid = rng.getrandbits(64), rng.random() < 0.5
                if type.which() == "list":
                    fill_list(rng, event.init(name, rng.randrange(5)), type)
                elif round > 0:
                    fill(rng, event.init(name))
                else:
                    event.init(name)
                file.write(event.to_bytes())
                show(event.as_reader())


def read(schema, log):
    with open(log, "rb") as file:
        for event in schema.Event.read_multiple(file):
            show(event)


if __name__ == "__main__":
    schema = capnp.load(sys.argv[2])
    if sys.argv[1] == "write":
        write(schema, sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        read(schema, sys.argv[3])
