package calibrate

import (
	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/ir"
)

// images are the NHWC images that a convolution slides over. Lines of them are read with the zeros that pad them, so that the elements
// of every patch lie at the same distances from its first one, and need not be gathered.
type images struct {
	count                   int // of images
	height, width, channels int
	lines, columns          int // of the output
	kernel, stride, pad     [2]int
	dilation                [2]int
	each                    int // channels of a group
	offsets                 []int32
}

func imagesOf(conv *ir.Node) *images {
	x, y, w, a := conv.Inputs[0].Type.Shape, conv.Outputs[0].Type.Shape, conv.Inputs[1].Type.Shape, conv.Attrs
	s := &images{count: x[0], height: x[1], width: x[2], channels: x[3], lines: y[1], columns: y[2], kernel: [2]int(w[2:]),
		stride: [2]int(a.Ints("strides")), pad: [2]int(a.Ints("pads")), dilation: [2]int(a.Ints("dilations")), each: w[1]}
	for c := range s.each {
		for ky := range s.kernel[0] {
			for kx := range s.kernel[1] {
				s.offsets = append(s.offsets, int32((ky*s.dilation[0]*s.pool()+kx*s.dilation[1])*s.channels+c))
			}
		}
	}
	return s
}

// reach is how many elements along a dimension some outputs see.
func (s *images) reach(dim, outputs int) int {
	return (outputs-1)*s.stride[dim] + (s.kernel[dim]-1)*s.dilation[dim] + 1
}

// pool is the width of a line with its padding.
func (s *images) pool() int { return s.reach(1, s.columns) }

// patches returns the patches of some output lines of the first group; other groups start further on. The memory
// is scratch.
func (s *images) patches(image []float32, first, lines int) blas.Scattered {
	pool, height := s.pool()*s.channels, s.reach(0, lines)
	out := blas.Scattered{F: scratch(height * pool), Offsets: s.offsets, Starts: make([]int32, 0, lines*s.columns)}
	left := s.pad[1] * s.channels
	for i := range height {
		to := out.F[i*pool:][:pool]
		y := first*s.stride[0] - s.pad[0] + i
		if y < 0 || y >= s.height || left >= pool {
			clear(to)
			continue
		}
		clear(to[:left])
		count := copy(to[left:], image[y*s.width*s.channels:][:s.width*s.channels])
		clear(to[left+count:])
	}
	for y := range lines {
		for x := range s.columns {
			out.Starts = append(out.Starts, int32(y*s.stride[0]*pool+x*s.stride[1]*s.channels))
		}
	}
	return out
}
