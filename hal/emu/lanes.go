package emu

// hotR and hotQ are the instructions that inner loops are made of, as loops over the lanes.
var hotR = map[string]func(d, a, b, c *row32){
	"add.u32": addR, "add.s32": addR,
	"sub.u32": subR, "sub.s32": subR,
	"mul.lo.u32": mulR, "mul.lo.s32": mulR,
	"mad.lo.u32": madR, "mad.lo.s32": madR,
	"and.b32": andR, "or.b32": orR, "xor.b32": xorR,
	"shl.b32": shlR,
	"shr.u32": shrR, "shr.b32": shrR,
	"shr.s32": func(d, a, b, _ *row32) {
		for l := range d {
			d[l] = uint32(int32(a[l]) >> b[l])
		}
	},
	"add.rn.f32": addF, "sub.rn.f32": subF, "mul.rn.f32": mulF, "fma.rn.f32": fmaF,
	"min.f32": minF, "max.f32": maxF,
	"cvt.f32.f16": widenF, "cvt.rn.f16.f32": halfF, "cvt.rn.f16x2.f32": halvesF,
}

var hotQ = map[string]func(d, a, b, c *row64){
	"add.u64": addQ, "add.s64": addQ,
	"sub.u64": subQ, "sub.s64": subQ,
}

func addRGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func subR(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] - b[l]
	}
}

func mulR(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] * b[l]
	}
}

func madRGo(d, a, b, c *row32) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}

func andRGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] & b[l]
	}
}

func orR(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] | b[l]
	}
}

func xorR(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] ^ b[l]
	}
}

// Go's shifts past the width give 0, as PTX's do.
func shlRGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] << b[l]
	}
}

func shrRGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = a[l] >> b[l]
	}
}

func addQ(d, a, b, _ *row64) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func subQ(d, a, b, _ *row64) {
	for l := range d {
		d[l] = a[l] - b[l]
	}
}

func addFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = b32(f32(a[l]) + f32(b[l]))
	}
}

func subFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = b32(f32(a[l]) - f32(b[l]))
	}
}

func mulFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = b32(f32(a[l]) * f32(b[l]))
	}
}

func fmaFGo(d, a, b, c *row32) {
	for l := range d {
		d[l] = b32(fma32(f32(a[l]), f32(b[l]), f32(c[l])))
	}
}

func minFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = min32(a[l], b[l])
	}
}

func maxFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = max32(a[l], b[l])
	}
}

// widenFGo is cvt.f32.f16.
func widenFGo(d, a, _, _ *row32) {
	for l := range d {
		d[l] = b32(halfToFloat(a[l]))
	}
}

// halfFGo is cvt.rn.f16.f32.
func halfFGo(d, a, _, _ *row32) {
	for l := range d {
		d[l] = floatToHalf(float64(f32(a[l])))
	}
}

// halvesFGo is cvt.rn.f16x2.f32: the first source becomes the upper half.
func halvesFGo(d, a, b, _ *row32) {
	for l := range d {
		d[l] = floatToHalf(float64(f32(a[l])))<<16 | floatToHalf(float64(f32(b[l])))
	}
}
