"""openpilot's loop around driving models with numpy: histories as openpilot keeps them, every row of them, and both warps.

A driver of this script (drive_twin_test.go) speaks with it over stdin and stdout. A message is a length (uint32, little endian), as
many bytes of JSON, and the bytes of the arrays that the JSON lists under "arrays": name, dtype and shape, in order. The driver
sends "start" and then "step" for each frame; this script asks it to evaluate models ("eval", answered by a message with the outputs)
and ends each step with "result".
"""
import json
import struct
import sys

import numpy as np


class Pipe:
    def __init__(self, source, sink):
        self.source, self.sink = source, sink

    def receive(self):
        length = self.source.read(4)
        if len(length) < 4:
            return None, None
        header = json.loads(self.source.read(struct.unpack("<I", length)[0]))
        arrays = {}
        for a in header.get("arrays") or []:
            dtype = np.dtype(a["dtype"])
            data = self.source.read(int(np.prod(a["shape"])) * dtype.itemsize)
            arrays[a["name"]] = np.frombuffer(data, dtype).reshape(a["shape"])
        return header, arrays

    def send(self, header, arrays):
        arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        header["arrays"] = [{"name": k, "dtype": v.dtype.name, "shape": list(v.shape)} for k, v in arrays.items()]
        text = json.dumps(header).encode()
        self.sink.write(struct.pack("<I", len(text)) + text + b"".join(v.tobytes() for v in arrays.values()))
        self.sink.flush()


def projected(m, width, height):
    """Homogeneous source coordinates of every pixel: float32, each product and sum rounded."""
    m = np.asarray(m, np.float32).reshape(3, 3)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return [(row[0] * x + row[1] * y) + row[2] for row in m]


def nearest(plane, m, width, height, fill=None):
    x, y, w = projected(m, width, height)
    with np.errstate(all="ignore"):
        column, row = np.rint(x / w), np.rint(y / w)
    clip = lambda v, n: np.clip(np.nan_to_num(v, nan=0.0, posinf=n - 1, neginf=0), 0, n - 1).astype(np.int64)
    r, c = clip(row, plane.shape[0]), clip(column, plane.shape[1])
    if fill is None:
        return plane[r, c]
    return np.where((r == row) & (c == column), plane[r, c], np.uint8(fill))


def bilinear(plane, m, width, height):
    x, y, w = projected(m, width, height)
    scale = np.divide(np.float32(32), w, out=np.zeros_like(w), where=w != 0)
    x, y = np.rint(x * scale).astype(np.int64), np.rint(y * scale).astype(np.int64)
    column, row, ax, ay = x >> 5, y >> 5, x & 31, y & 31
    at = lambda r, c: plane[np.clip(r, 0, plane.shape[0] - 1), np.clip(c, 0, plane.shape[1] - 1)].astype(np.int64)
    total = (32 - ay) * ((32 - ax) * at(row, column) + ax * at(row, column + 1))
    total += ay * ((32 - ax) * at(row + 1, column) + ax * at(row + 1, column + 1))
    return ((total + 512) >> 10).astype(np.uint8)


def product(a, b):
    """Of two matrices in float32, sums from left to right."""
    terms = [a[:, k : k + 1] * b[k : k + 1, :] for k in range(3)]
    return terms[0] + terms[1] + terms[2]


def chroma(m, sample):
    """The matrix between planes of half the size: pixels count from their corners, or where openpilot sampled with OpenCL from their centres."""
    if sample is nearest:
        return m * np.array([[1, 1, 0.5], [1, 1, 0.5], [2, 2, 1]], np.float32)
    out = np.array([[2, 0, 0.5], [0, 2, 0.5], [0, 0, 1]], np.float32)
    into = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]], np.float32)
    return product(into, product(m, out))


def six_planes(picture, m, width, height, sample):
    """Of an NV12 picture (y, u, v): the six planes of a model's frame, width × height pixels of luma."""
    y, u, v = picture
    m = np.asarray(m, np.float32).reshape(3, 3)
    half = chroma(m, sample)
    luma = sample(y, m, width, height)
    colours = [sample(p, half, width // 2, height // 2) for p in (u, v)]
    return np.stack([luma[0::2, 0::2], luma[1::2, 0::2], luma[0::2, 1::2], luma[1::2, 1::2]] + colours)


def nv12(data, width, height, stride, uv):
    rows = lambda at, count: np.stack([data[at + r * stride : at + r * stride + width] for r in range(count)])
    chroma = rows(uv, height // 2)
    return rows(0, height), chroma[:, 0::2], chroma[:, 1::2]


def shifted(queue, row):
    queue[:-1] = queue[1:]
    queue[-1] = row


# What differs between generations: whether pictures are sampled bilinearly and follow at once, whether histories have every step, what
# a missed frame does ("shift": desires move on, "lose": they do not, and a pulse is lost, "never": the model runs all the same), and
# whether the graph appends the current features.
GENERATIONS = {
    "supercombo096": dict(bilinear=True, ring=2, every=True, missed="shift", past=True),
    "supercombo097": dict(bilinear=True, ring=5, every=False, missed="shift", past=True),
    "0.10.0": dict(bilinear=True, ring=5, every=False, missed="shift", past=False),
    "0.10.3": dict(bilinear=True, ring=5, every=False, missed="lose", past=False),
    "0.10.2": dict(bilinear=False, ring=5, every=False, missed="lose", past=False),
    "driving_supercombo": dict(bilinear=False, ring=5, every=False, missed="lose", past=True),
    "supercombo_history": dict(bilinear=False, ring=5, every=False, missed="never", past=True),
}


class Monitor:
    """Driver monitoring keeps nothing: luma around 16, or of the 2021 network six planes of a seat, odd rows of which are never read."""

    def __init__(self, header, evaluate):
        self.evaluate, (self.model,) = evaluate, header["models"]
        self.width, self.height = header["width"], header["height"]

    def step(self, header, arrays):
        y, u, v = nv12(arrays["road"], *header["road"])
        m = arrays["road_matrix"]
        own = {"calib": np.array(header.get("calib") or [0, 0, 0], float)[None]}
        own = {k: x for k, x in own.items() if k in self.model["inputs"]}
        if self.model["name"] == "dmonitoring_luma":
            own["input_img"] = nearest(y, m, self.width, self.height, fill=16).reshape(1, -1)
        else:
            luma = bilinear(y, m, self.width + 1, self.height)
            half = chroma(np.asarray(m, np.float32).reshape(3, 3), bilinear)
            colours = [bilinear(p, half, self.width // 2, self.height // 2) for p in (u, v)]
            planes = np.stack([luma[0::2, c : c + self.width : 2] for c in (0, 1, 1, 2)] + colours)
            own["input_img"] = ((planes.astype(float) - 128) / 128)[None]
        result = self.evaluate(self.model["name"], own)
        name = self.model["name"]
        return {f"{name}.{k}": x for k, x in own.items()}, {f"{name}.{k}": x for k, x in result.items()}


class Loop:
    def __init__(self, header, evaluate):
        self.rule = GENERATIONS[header["contract"]]
        self.evaluate, self.models = evaluate, header["models"]
        self.width, self.height = header["width"], header["height"]  # of the model's frame
        planes = (self.rule["ring"], 6, self.height // 2, self.width // 2)
        self.images = [np.zeros(planes, np.uint8) for _ in range(2)]
        self.features_size = header["features"]
        past = 100 if not self.rule["past"] else 99 if self.rule["every"] else 96
        self.features = np.zeros((past, self.features_size))
        self.desire, self.curvature = np.zeros((100, 8)), np.zeros((100, 1))
        self.previous = np.zeros(8)
        self.feature = np.zeros(self.features_size)
        self.state, self.last = {}, 0

    def pulse(self, desire):
        desire = np.array(desire, float)
        desire[0] = 0
        pulse = np.where(desire - self.previous > 0.99, desire, 0)
        self.previous = desire
        return pulse

    def step(self, header, arrays):
        """Runs a frame: inputs of all models, outputs of all models; none if frames were missed and this generation then waits."""
        rule = self.rule
        missed = max(0, header["id"] - self.last - 1)
        self.last = header["id"]
        pulse = self.pulse(header["desire"])
        sample = bilinear if rule["bilinear"] else nearest
        warped = []
        for camera, queue in zip(("road", "wide"), self.images):
            picture = nv12(arrays[camera], *header[camera])
            warped.append(six_planes(picture, arrays[camera + "_matrix"], self.width, self.height, sample))
            shifted(queue, warped[-1])
        stop = missed > 0 and rule["missed"] != "never"
        if not stop or rule["missed"] == "shift":
            shifted(self.desire, pulse)
        if stop:
            return {}, {}
        images = [np.concatenate([q[0], q[-1]])[None] for q in self.images]
        given = {"traffic_convention": np.array(header["traffic_convention"], float)[None], "warped": np.stack(warped)}
        for name in ("lateral_control_params", "action_t"):
            given[name] = np.array(header["params"], float)[None]
        for name, x in zip(("img", "big_img", "input_imgs", "big_input_imgs"), images * 2):
            given[name] = x
        pooled = self.desire if rule["every"] else self.desire.reshape(25, 4, 8).max(axis=1)
        given["desire"] = given["desire_pulse"] = pooled[None]
        given["prev_desired_curv"] = (self.curvature if rule["every"] else self.curvature[-97::4])[None]
        if rule["past"]:
            if not rule["every"]:
                shifted(self.features, self.feature)
            given["features_buffer"] = (self.features if rule["every"] else self.features[::4])[None]
        inputs, outputs = {}, {}
        for model in self.models:
            if model["name"] == "supercombo_history":
                given["desire"] = pulse
            own = {}
            for name, shape in model["inputs"].items():
                if name.startswith("state_"):
                    pictures = "img_q" in name
                    own[name] = self.state.get(name, np.zeros(shape)).astype(np.uint8 if pictures else float)
                else:
                    own[name] = given[name].copy()  # queues move on before the result is sent
                if list(own[name].shape) != shape:
                    raise ValueError(f"{model['name']}: {name} is formed as {own[name].shape}, the model takes {shape}")
            result = self.evaluate(model["name"], own)
            for name, x in own.items():
                inputs[f"{model['name']}.{name}"] = x
            for name, x in result.items():
                outputs[f"{model['name']}.{name}"] = x
                if name.startswith("next_"):
                    self.state[name[len("next_") :]] = x
            flat = result["outputs"].reshape(-1)
            if "hidden_state" in model["slices"]:
                start, end = model["slices"]["hidden_state"]
                self.feature = flat[start:end].copy()
                if rule["every"]:
                    shifted(self.features, self.feature)  # after the run
                elif not rule["past"]:
                    shifted(self.features, self.feature)  # before the policy's
                    given["features_buffer"] = self.features[-97::4][None]
            if "desired_curvature" in model["slices"]:
                shifted(self.curvature, flat[model["slices"]["desired_curvature"][0]])
        return inputs, outputs


def main():
    pipe = Pipe(sys.stdin.buffer, sys.stdout.buffer)

    def evaluate(model, inputs):
        pipe.send({"op": "eval", "model": model}, inputs)
        return pipe.receive()[1]

    header, _ = pipe.receive()
    loop = (Monitor if header["contract"] == "monitoring" else Loop)(header, evaluate)
    while True:
        header, arrays = pipe.receive()
        if header is None:
            return
        inputs, outputs = loop.step(header, arrays)
        pipe.send({"op": "result"}, {**{"in." + k: v for k, v in inputs.items()}, **{"out." + k: v for k, v in outputs.items()}})


if __name__ == "__main__":
    main()
