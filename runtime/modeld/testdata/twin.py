"""What openpilot's modeld computes around a model, in float64 with numpy: written from its description, apart from the Go package, to
check that. Use as a module, or

    python twin.py COMMAND IN.npz OUT.npz

where arrays in IN are named CASE.NAME, in OUT likewise; COMMAND is one of those in the table at the end.
"""
import sys

import numpy as np

POINTS = 33
T_IDXS = 10.0 * (np.arange(POINTS) / 32.0) ** 2


def safe_exp(x, clipped=True):
    return np.exp(np.minimum(x, 11.0) if clipped else x)


def sigmoid(x, clipped=True):
    return 1.0 / (1.0 + safe_exp(-x, clipped))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def mixture(raw, hypotheses, selections, shape, clipped):
    """Means and deviations of every hypothesis, and the weights [hypothesis, selection]."""
    raw = raw.reshape(hypotheses, -1)
    n = (raw.shape[1] - selections) // 2
    mean = raw[:, :n].reshape((hypotheses,) + shape)
    std = safe_exp(raw[:, n : 2 * n], clipped).reshape((hypotheses,) + shape)
    return mean, std, softmax(raw[:, 2 * n :], axis=0) if selections else None


def normal(raw, shape, clipped):
    mean, std, _ = mixture(raw, 1, 0, shape, clipped)
    return mean[0], std[0]


def parse_outputs(slices, clipped=True):
    """Named raw slices (1-D arrays) to named arrays. clipped is False for parsers until 0.9, which take desire_state as it is."""
    out = {}
    for name, raw in slices.items():
        if name == "plan" and len(raw) == 4955:
            mean, std, weights = mixture(raw, 5, 1, (POINTS, 15), clipped)
            order = np.argsort(-weights[:, 0], kind="stable")
            out["plan"], out["plan_stds"], out["plan_weights"] = mean[order], std[order], weights[order, 0]
        elif name == "plan":
            mean, std = normal(raw, (1, POINTS, 15), clipped)
            out["plan"], out["plan_stds"], out["plan_weights"] = mean, std, np.ones(1)
        elif name == "lead" and len(raw) == 102:
            mean, std, weights = mixture(raw, 2, 3, (6, 4), clipped)
            best = np.argmax(weights, axis=0)
            out["lead"], out["lead_stds"] = mean[best], std[best]
            out["lead_choice"], out["lead_weights"] = best.astype(float), weights[best, np.arange(3)]
        elif name == "lead":
            out["lead"], out["lead_stds"] = normal(raw, (3, 6, 4), clipped)
            out["lead_choice"], out["lead_weights"] = np.zeros(3), np.ones(3)
        elif name in ("lane_lines", "road_edges"):
            out[name], out[name + "_stds"] = normal(raw, (-1, POINTS, 2), clipped)
        elif name in ("pose", "road_transform", "wide_from_device_euler", "desired_curvature"):
            out[name], out[name + "_stds"] = normal(raw, (-1,), clipped)
        elif name == "lane_lines_prob":
            out[name] = sigmoid(raw, clipped)[1::2]
        elif name == "lead_prob":
            out[name] = sigmoid(raw, clipped)
        elif name == "meta":
            p = sigmoid(raw, clipped)
            out["engaged"] = p[:1]
            if len(p) == 55:
                step, press = p[1:31].reshape(5, 6), p[31:].reshape(6, 4)
                out["gas_press"], out["brake_press"], out["left_blinker"], out["right_blinker"] = press.T
            else:
                step, press = p[1:36].reshape(5, 7), p[36:].reshape(6, 2)
                out["gas_press"], (out["left_blinker"], out["right_blinker"]) = step[:, 6], press.T
            for i, key in enumerate(("gas", "brake", "steer", "brake3", "brake4", "brake5")):
                out[key] = step[:, i]
        elif name == "desire_pred":
            out[name] = softmax(raw.reshape(4, 8))
        elif name == "desire_state":
            out[name] = softmax(raw) if clipped else raw
        elif name in ("action", "hidden_state"):
            out[name] = raw
    return out


def parse_monitoring(slices):
    """A driver-monitoring model of named slices."""
    out = {}
    for name, raw in slices.items():
        if name.startswith("face_descs_"):
            side = name[-3:]
            out["face_" + side], out["face_stds_" + side] = raw[:6], safe_exp(raw[6:])
        elif "_prob_" in name or name == "wheel_on_right":
            out[name] = sigmoid(raw)
    return out


def parse_seats(values):
    """A driver-monitoring model of one vector: of two seats (596 values), or of one that has computed its probabilities (39)."""
    out = {}
    two = len(values) == 596
    std = np.exp if two else lambda x: np.logaddexp(0.0, x)
    probability = (lambda x: sigmoid(x, clipped=False)) if two else lambda x: x
    places = {"face_prob": 12, "left_eye_prob": 21, "right_eye_prob": 30, "left_blink_prob": 31, "right_blink_prob": 32, "sunglasses_prob": 33}
    if two:
        places["occluded_prob"] = 34
        out["wheel_on_right"] = probability(values[83:84])
    for side, seat in (("lhd", values[:41]), ("rhd", values[41:82])) if two else (("lhd", values),):
        out["face_" + side], out["face_stds_" + side] = seat[:6], std(seat[6:12])
        for name, i in places.items():
            out[name + "_" + side] = probability(seat[i : i + 1])
        if two:
            out["ready_" + side], out["not_ready_" + side] = probability(seat[35:39]), probability(seat[39:41])
    return out


def disengagements(gas, brake, steer):
    until = 1 - (1 - gas) * (1 - brake) * (1 - steer)
    return np.concatenate([until[:1], np.diff(until) / (1 - until[:-1])])


def confidence(frames):
    """Of frames (id, gas 5, brake 5, steer 5, brake3, brake5): whether hard braking is predicted, and the class 0 to 2."""
    buffer, brake5, brake3, out = np.zeros((5, 5)), np.zeros(5), np.zeros(2), []
    for f in frames:
        brake3, brake5 = np.append(brake3[1:], f[16]), np.append(brake5[1:], f[17])
        hard = (brake5 > [0.05, 0.05, 0.15, 0.15, 0.15]).all() and (brake3 > 0.7).all()
        if f[0] % 40 == 0:
            buffer = np.vstack([buffer[1:], disengagements(f[1:6], f[6:11], f[11:16])])
        score = np.trace(buffer[:, ::-1]) / 5
        out.append([hard, 2 if score < 0.01165 else 1 if score < 0.06157 else 0])
    return np.array(out, float)


# Releases: seconds added to the lateral and longitudinal delay, time constants, desired_curvature or plan, straight before, stop.
RULES = {
    "0.10.0": (0.05, 0.05, 0.0, 0.0, True, 0.0, "plan"),
    "0.10.3": (0.15, 0.35, 0.1, 0.3, False, 0.0, "plan"),
    "2026": (0.075, 0.375, 0.0, 0.3, False, 0.3, "speed"),
}


def commands(rule, frames):
    """Of frames (vEgo, lateral delay, longitudinal delay, desired curvature, action 2 or NaN, speed 33, acceleration now, yaw 33, yaw rate
    now): acceleration, curvature and stop."""
    lateral, longitudinal, tau, tau_long, from_output, stable, stop_by = RULES[rule]
    alpha, alpha_long = (1 - np.exp(-0.05 / t) if t else 1.0 for t in (tau, tau_long))
    a_last = k_last = 0.0
    out = []

    for f in frames:
        v, t, t_long, action = max(f[0], 0.0), f[1] + lateral, f[2] + longitudinal, f[4:6]
        speed, a0, yaw, rate = f[6:39], f[39], f[40:73], f[73]
        gained = np.interp(max(t_long, stable), T_IDXS, speed) - speed[0]
        if t_long < stable:
            gained *= t_long / stable
        a = 2 * gained / t_long - a0
        psi = t / stable * np.interp(stable, T_IDXS, yaw) if t < stable else np.interp(t, T_IDXS, yaw)
        k = f[3] if from_output else 2 * psi / (max(v, 1.0) * t) - rate / max(v, 1.0)
        stop = np.interp(t_long, T_IDXS, speed) < 0.05 and np.interp(t_long + 1, T_IDXS, speed) < 0.05
        if not np.isnan(action[0]):
            k, a = action[0] / max(v, 1.0) ** 2, action[1]
        if stop_by == "speed" or not np.isnan(action[0]):
            stop = v < 0.3 and a < 0.1
        a_last = alpha_long * a + (1 - alpha_long) * a_last
        if v > 0.3:
            k_last = alpha * k + (1 - alpha) * k_last
        out.append([a_last, k_last, stop])
    return np.array(out, float)


COMMANDS = {
    "parse": parse_outputs,
    "parse-older": lambda slices: parse_outputs(slices, clipped=False),
    "monitoring": parse_monitoring,
    "seats": lambda case: parse_seats(case["outputs"]),
    "confidence": lambda case: {"out": confidence(case["frames"])},
    "commands": lambda case: {name: commands(name, case["frames"]) for name in RULES},
}


def main(command, source, destination):
    cases = {}
    for key, array in np.load(source).items():
        case, _, name = key.partition(".")
        cases.setdefault(case, {})[name] = array
    with np.errstate(all="ignore"):
        results = {case: COMMANDS[command](arrays) for case, arrays in cases.items()}
    np.savez(destination, **{f"{case}.{name}": np.asarray(a, float) for case, arrays in results.items() for name, a in arrays.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
