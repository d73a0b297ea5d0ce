package modeld

import "fmt"

// largestSide of a picture that is taken for one, in pixels.
const largestSide = 1 << 15

// layout returns the bytes from row to row and the offset of the chroma rows, where p leaves them open.
func (p Picture) layout() (stride, uv int) {
	stride, uv = p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	return stride, uv
}

// check reports what is wrong with a picture, which the error calls by name. The last row need not be as long as the stride.
func (p Picture) check(name string) error {
	for _, side := range []struct {
		name   string
		pixels int
	}{{"width", p.Width}, {"height", p.Height}} {
		if side.pixels <= 0 || side.pixels%2 != 0 || side.pixels > largestSide {
			return fmt.Errorf("%s: a %s of %d pixels: an NV12 picture has an even number, from 2 to %d; crop it", name, side.name, side.pixels, largestSide)
		}
	}
	if p.Stride < 0 || p.Stride != 0 && p.Stride < p.Width {
		return fmt.Errorf("%s: a stride of %d bytes is shorter than a row of %d pixels: give the bytes from row to row, or 0 if rows are not padded",
			name, p.Stride, p.Width)
	}
	// Before anything is multiplied: no stride is longer than the data.
	if p.Stride > len(p.Data) {
		return fmt.Errorf("%s: a stride of %d bytes, but %d bytes of data: the whole buffer must be given, padding included", name, p.Stride, len(p.Data))
	}
	stride, uv := p.layout()
	if uv < stride*p.Height {
		return fmt.Errorf("%s: chroma rows at byte %d lie in the luma rows, which end at %d: UV is the offset of the chroma rows, or 0 if they follow at once",
			name, uv, stride*p.Height)
	}
	if rows := stride*(p.Height/2-1) + p.Width; uv > len(p.Data)-rows {
		return fmt.Errorf("%s: frame too short: %d bytes, need %d (%d luma rows of %d bytes, then chroma from byte %d): pass the whole buffer",
			name, len(p.Data), uint64(uv)+uint64(rows), p.Height, stride, uv)
	}
	return nil
}
