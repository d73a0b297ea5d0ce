package ir

// ResizeTaps describes how a Resize node computes dimension dim: for every output coordinate the input coordinates it reads,
// with their weights (one of weight 1 for nearest), and whether it is extrapolated instead.
func (n *Node) ResizeTaps(dim int) (index [][]int, weight [][]float64, outside []bool) {
	r := n.resampleOf(dim, n.Inputs[0].Type.Shape[dim], n.Outputs[0].Type.Shape[dim])
	if n.Attrs.String("coordinate", "half_pixel") != "tf_crop_and_resize" {
		clear(r.outside)
	}
	return r.index, r.weight, r.outside
}
