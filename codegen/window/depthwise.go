package window

import (
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
)

// Depthwise is a depthwise convolution of images [N,H,W,C], NHWC, one output channel a channel, as a kernel of
// another family computes it.
type Depthwise struct {
	Region, Anchor *ir.Node // with storage spelled out
	Stored         ir.DType // of the images in memory
	Images         int      // of a member
	H, W, C        int
	OH, OW         int
	KH, KW         int
	SH, SW         int // strides
	DH, DW         int // dilations
	Top, Left      int // padding

	taps []float64
}

// AsDepthwise reads a region of family window; the error says why it is no such convolution.
func AsDepthwise(region *ir.Node) (*Depthwise, error) {
	p, err := analyse(region)
	switch {
	case err != nil:
		return nil, err
	case p.taps == nil || p.multiplier != 1:
		return nil, fmt.Errorf("not a convolution of as many channels as it reads")
	case p.blocks != nil:
		return nil, fmt.Errorf("its result is stored in blocks")
	case p.anchor.In(2) != nil && p.bias == nil:
		return nil, fmt.Errorf("its bias is not constant")
	}
	return &Depthwise{Region: p.region, Anchor: p.anchor, Stored: p.stored, Images: p.n, H: p.h, W: p.w, C: p.c, OH: p.oh, OW: p.ow, KH: p.kh, KW: p.kw,
		SH: p.sh, SW: p.sw, DH: p.dh, DW: p.dw, Top: p.ph, Left: p.pw, taps: p.taps}, nil
}

// Tap is a weight of a member's channel.
func (d *Depthwise) Tap(member, channel, tap int) float64 {
	return d.taps[(member*d.C+channel)*d.KH*d.KW+tap]
}
