"""Runs a vision model and its policy over 100 frames: drive.py driving, or drive.py driving_vision.onnx driving_policy.onnx"""
import sys

import numpy as np
import sparkcompile
from sparkcompile import Calibration, Frame, Inputs, Picture


def main(*paths: str) -> None:
    cameras = sparkcompile.cameras("tici", "ar0231")
    inputs = Inputs(v_ego=20.0, calibration=Calibration((0.0, 0.0, 0.0), cameras.road, cameras.wide))
    w, h = cameras.road.width, cameras.road.height
    stripes = (np.arange(w * h * 3 // 2) // w // 4).astype(np.uint8)  # NV12; stripes that move stand in for a camera
    with sparkcompile.Modeld(*paths) as loop:  # on the GPU if there is one, else on the CPU
        for i in range(100):
            picture = Picture(stripes + np.uint8(i), w, h)
            out = loop.step(Frame(road=picture, wide=picture, id=i), inputs)
            print(f"frame {i:2}: curvature {out.curvature_command:9.6f} 1/m, acceleration {out.acceleration_command:6.3f} m/s², {out.stats.run / 1e6:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["driving"])
