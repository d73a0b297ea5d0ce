package emu

// The AVX2 functions compute bit for bit what their Go twins do (lanes.go, fragment.go).

//go:noescape
func addAVX2(d, a, b, c *row32)

//go:noescape
func subAVX2(d, a, b, c *row32)

//go:noescape
func mulAVX2(d, a, b, c *row32)

//go:noescape
func fmaAVX2(d, a, b, c *row32)

//go:noescape
func addIntAVX2(d, a, b, c *row32)

//go:noescape
func madAVX2(d, a, b, c *row32)

//go:noescape
func andAVX2(d, a, b, c *row32)

//go:noescape
func shlAVX2(d, a, b, c *row32)

//go:noescape
func shrAVX2(d, a, b, c *row32)

//go:noescape
func minAVX2(d, a, b, c *row32)

//go:noescape
func maxAVX2(d, a, b, c *row32)

//go:noescape
func widenAVX2(d, a, b, c *row32)

//go:noescape
func halfAVX2(d, a, b, c *row32)

//go:noescape
func halvesAVX2(d, a, b, c *row32)

// mmaF16AVX2 takes the first row and 14 indices: d0…d3, a0…a3, b0, b1, c0…c3.
//
//go:noescape
func mmaF16AVX2(r *row32, v *int32)

//go:noescape
func mmaBF16AVX2(r *row32, v *int32)

func cpuid(leaf, sub uint32) (a, b, c, d uint32)

func xgetbv() uint32

var haveAVX2 = detectAVX2()

// detectAVX2 asks for AVX2, FMA and F16C, and whether the system saves the wide registers.
func detectAVX2() bool {
	if top, _, _, _ := cpuid(0, 0); top < 7 {
		return false
	}
	const fma, osxsave, avx, f16c = 1 << 12, 1 << 27, 1 << 28, 1 << 29
	_, _, c, _ := cpuid(1, 0)
	if want := uint32(fma | osxsave | avx | f16c); c&want != want || xgetbv()&6 != 6 {
		return false
	}
	_, b, _, _ := cpuid(7, 0)
	return b&(1<<5) != 0
}

func addR(d, a, b, c *row32) {
	if haveAVX2 {
		addIntAVX2(d, a, b, c)
	} else {
		addRGo(d, a, b, c)
	}
}

func madR(d, a, b, c *row32) {
	if haveAVX2 {
		madAVX2(d, a, b, c)
	} else {
		madRGo(d, a, b, c)
	}
}

func andR(d, a, b, c *row32) {
	if haveAVX2 {
		andAVX2(d, a, b, c)
	} else {
		andRGo(d, a, b, c)
	}
}

func shlR(d, a, b, c *row32) {
	if haveAVX2 {
		shlAVX2(d, a, b, c)
	} else {
		shlRGo(d, a, b, c)
	}
}

func shrR(d, a, b, c *row32) {
	if haveAVX2 {
		shrAVX2(d, a, b, c)
	} else {
		shrRGo(d, a, b, c)
	}
}

func minF(d, a, b, c *row32) {
	if haveAVX2 {
		minAVX2(d, a, b, c)
	} else {
		minFGo(d, a, b, c)
	}
}

func maxF(d, a, b, c *row32) {
	if haveAVX2 {
		maxAVX2(d, a, b, c)
	} else {
		maxFGo(d, a, b, c)
	}
}

func widenF(d, a, b, c *row32) {
	if haveAVX2 {
		widenAVX2(d, a, b, c)
	} else {
		widenFGo(d, a, b, c)
	}
}

func halfF(d, a, b, c *row32) {
	if haveAVX2 {
		halfAVX2(d, a, b, c)
	} else {
		halfFGo(d, a, b, c)
	}
}

func halvesF(d, a, b, c *row32) {
	if haveAVX2 {
		halvesAVX2(d, a, b, c)
	} else {
		halvesFGo(d, a, b, c)
	}
}

func addF(d, a, b, c *row32) {
	if haveAVX2 {
		addAVX2(d, a, b, c)
	} else {
		addFGo(d, a, b, c)
	}
}

func subF(d, a, b, c *row32) {
	if haveAVX2 {
		subAVX2(d, a, b, c)
	} else {
		subFGo(d, a, b, c)
	}
}

func mulF(d, a, b, c *row32) {
	if haveAVX2 {
		mulAVX2(d, a, b, c)
	} else {
		mulFGo(d, a, b, c)
	}
}

func fmaF(d, a, b, c *row32) {
	if haveAVX2 {
		fmaAVX2(d, a, b, c)
	} else {
		fmaFGo(d, a, b, c)
	}
}

func mmaF16(r []row32, v []int32) {
	if !haveAVX2 {
		mmaF16Go(r, v)
		return
	}
	_ = v[13]
	mmaF16AVX2(&r[0], &v[0])
}

func mmaBF16(r []row32, v []int32) {
	if !haveAVX2 {
		mmaBF16Go(r, v)
		return
	}
	_ = v[13]
	mmaBF16AVX2(&r[0], &v[0])
}
