package contraction

import "github.com/spark-compile/spark-compile/ir"

func init() {
	if r := ir.LookupOp("Conv"); r.Eval == nil {
		r.Eval = func(n *ir.Node, in []*ir.Array) ([]*ir.Array, error) {
			x, w := in[0], in[1]
			y := ir.NewArray(n.Outputs[0].Type)
			st, pd := n.Attrs.Ints("strides"), n.Attrs.Ints("pads")
			g := n.Attrs.Int("group", 1)
			xs, ws, ys := x.Type.Shape, w.Type.Shape, y.Type.Shape
			H, W, C := xs[1], xs[2], xs[3]
			at := 0
			for b := 0; b < ys[0]; b++ {
				for oy := 0; oy < ys[1]; oy++ {
					for ox := 0; ox < ys[2]; ox++ {
						for o := 0; o < ys[3]; o++ {
							s := 0.0
							if len(in) > 2 && in[2] != nil {
								s = in[2].F[o]
							}
							gi := o / (ys[3] / g)
							for ky := 0; ky < ws[2]; ky++ {
								for kx := 0; kx < ws[3]; kx++ {
									iy, ix := oy*st[0]+ky-pd[0], ox*st[1]+kx-pd[1]
									if iy < 0 || ix < 0 || iy >= H || ix >= W {
										continue
									}
									for c := 0; c < ws[1]; c++ {
										s += x.F[((b*H+iy)*W+ix)*C+gi*ws[1]+c] * w.F[((o*ws[1]+c)*ws[2]+ky)*ws[3]+kx]
									}
								}
							}
							y.F[at] = s
							at++
						}
					}
				}
			}
			return []*ir.Array{y}, nil
		}
	}
}
