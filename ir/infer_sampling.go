package ir

import (
	"fmt"
	"math"
	"slices"
)

func inferResize(n *Node) ([]Type, error) {
	x, sizes, scales := n.Inputs[0].Type, n.Attrs.Ints("sizes"), n.Attrs.Floats("scales")
	err := firstError(CheckShape(sizes),
		n.oneOf("mode", "nearest", "nearest", "linear", "cubic"),
		n.oneOf("nearest", "round_prefer_floor", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
		n.oneOf("coordinate", "half_pixel", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
			"align_corners", "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"))
	if err != nil {
		return nil, err
	}
	for i, s := range scales {
		if !(s > 0) || math.IsInf(s, 0) {
			return nil, fmt.Errorf("scales=%v must be positive", scales)
		}
		if x.Shape[i] == 0 && sizes[i] > 0 {
			return nil, fmt.Errorf("dimension %d of %v is empty and cannot grow to %d", i, x, sizes[i])
		}
	}
	if roi := n.Attrs.Floats("roi"); n.Attrs.String("coordinate", "half_pixel") == "tf_crop_and_resize" && len(roi) != 2*x.Rank() {
		return nil, fmt.Errorf("roi=%v, want %d values", roi, 2*x.Rank())
	}
	return one(x.DType, slices.Clone(sizes)...)
}

func inferGridSample(n *Node) ([]Type, error) {
	x, grid := n.Inputs[0].Type, n.Inputs[1].Type
	err := firstError(n.oneOf("mode", "linear", "linear", "nearest", "cubic"),
		n.oneOf("padding", "zeros", "zeros", "border", "reflection"))
	if err != nil {
		return nil, err
	}
	r := x.Rank() - 2
	if r < 1 || grid.Rank() != x.Rank() || grid.Shape[0] != x.Shape[0] || grid.Shape[r+1] != r {
		return nil, fmt.Errorf("x %v and grid %v do not fit: want [N,C,D…] and [N,O…,%d]", x, grid, max(r, 1))
	}
	if slices.Contains(x.Shape[2:], 0) {
		return nil, fmt.Errorf("x %v has an empty spatial dimension", x)
	}
	return one(x.DType, slices.Concat(x.Shape[:2], grid.Shape[1:r+1])...)
}

func inferRoiAlignWeights(n *Node) ([]Type, error) {
	rois := n.Inputs[0].Type
	if rois.Rank() != 2 || rois.Shape[1] != 4 {
		return nil, fmt.Errorf("rois %v: want [R,4]", rois)
	}
	bins, size, ratio := n.Attrs.Int("bins", 1), n.Attrs.Int("size", 1), n.Attrs.Int("sampling_ratio", 0)
	if bins < 1 || size < 1 || ratio < 0 {
		return nil, fmt.Errorf("bins=%d, size=%d, sampling_ratio=%d: want bins and size > 0, and a ratio ≥ 0", bins, size, ratio)
	}
	wide := Float32
	if rois.DType == Float64 {
		wide = Float64
	}
	return one(wide, rois.Shape[0], bins, size)
}

func inferRoiAlign(n *Node) ([]Type, error) {
	x, rois := n.Inputs[0].Type, n.Inputs[1].Type
	if err := n.oneOf("mode", "avg", "avg", "max"); err != nil {
		return nil, err
	}
	if x.Rank() != 4 || rois.Rank() != 2 || rois.Shape[1] != 4 {
		return nil, fmt.Errorf("x %v and rois %v do not fit: want [N,C,H,W] and [R,4]", x, rois)
	}
	if slices.Contains(x.Shape[2:], 0) {
		return nil, fmt.Errorf("x %v has an empty spatial dimension", x)
	}
	if err := n.shaped(2, rois.Shape[0]); err != nil {
		return nil, err
	}
	h, w, s := n.Attrs.Int("height", 1), n.Attrs.Int("width", 1), n.Attrs.Int("sampling_ratio", 0)
	if h < 1 || w < 1 {
		return nil, fmt.Errorf("output size %d×%d", h, w)
	}
	if s < 1 {
		return nil, fmt.Errorf("sampling_ratio=%d: the number of samples would depend on data; only a ratio > 0 is supported", s)
	}
	return one(x.DType, rois.Shape[0], x.Shape[1], h, w)
}
