"""Inputs for driver monitoring from the pictures that scikit-image ships: unlike all that anything was calibrated on."""
import pathlib

import numpy as np
import skimage.io
import skimage.transform

PICTURES = ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "camera.png", "clock_motion.png",
            "ihc.png", "retina.jpg", "hubble_deep_field.jpg"]


def yuv(rgb):
    """BT.601, full range."""
    r, g, b = (rgb[..., i] for i in range(3))
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return y, 128 + 0.564 * (b - y), 128 + 0.713 * (r - y)


def crop(picture, rng):
    """Part of a picture as 640 x 320 RGB, in other light and with noise."""
    if picture.ndim == 2:
        picture = np.stack([picture] * 3, -1)
    picture = picture[..., :3].astype(float)
    height, width = picture.shape[:2]
    h = int(min(height, 2 * width) * rng.uniform(0.5, 1))
    w = h // 2
    top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
    part = skimage.transform.resize(picture[top:top + h, left:left + w], (640, 320), preserve_range=True, anti_aliasing=True)
    gamma, gain, offset = rng.uniform(0.6, 1.6), rng.uniform(0.5, 1.3), rng.uniform(-20, 20)
    part = 255 * (part / 255) ** gamma * gain + offset + rng.normal(0, rng.uniform(0, 12), part.shape)
    return np.clip(part, 0, 255)


def planes(rgb):
    """YUV 4:2:0 as the network reads it: four phases of luma, then U and V, (x - 128) / 128; 1 x 6 x 320 x 160."""
    y, u, v = yuv(rgb)
    half = lambda p: p.reshape(320, 2, 160, 2).mean((1, 3))
    phases = [y[::2, ::2], y[::2, 1::2], y[1::2, ::2], y[1::2, 1::2]]
    codes = np.clip(np.rint(np.stack(phases + [half(u), half(v)])), 0, 255)
    return ((codes - 128) / 128).astype(np.float32)[None]


def inputs(count=20):
    """The same ones every time."""
    data = pathlib.Path(skimage.__file__).parent / "data"
    rng = np.random.default_rng(20261122)
    return [planes(crop(skimage.io.imread(data / PICTURES[k % len(PICTURES)]), rng)) for k in range(count)]
