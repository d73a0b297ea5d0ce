package ptx

// The AVX2 functions compute bit for bit what their Go twins do (lanes.go, mma.go).

//go:noescape
func addAVX2(d, a, b, c *Row32)

//go:noescape
func subAVX2(d, a, b, c *Row32)

//go:noescape
func mulAVX2(d, a, b, c *Row32)

//go:noescape
func fmaAVX2(d, a, b, c *Row32)

//go:noescape
func addIntAVX2(d, a, b, c *Row32)

//go:noescape
func madAVX2(d, a, b, c *Row32)

//go:noescape
func andAVX2(d, a, b, c *Row32)

//go:noescape
func shlAVX2(d, a, b, c *Row32)

//go:noescape
func shrAVX2(d, a, b, c *Row32)

//go:noescape
func maxAVX2(d, a, b, c *Row32)

//go:noescape
func widenAVX2(d, a, b, c *Row32)

//go:noescape
func halfAVX2(d, a, b, c *Row32)

//go:noescape
func halvesAVX2(d, a, b, c *Row32)

// mmaF16AVX2 takes the first row and 14 indices: d0…d3, a0…a3, b0, b1, c0…c3.
//
//go:noescape
func mmaF16AVX2(r *Row32, v *int32)

//go:noescape
func mmaBF16AVX2(r *Row32, v *int32)

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

// pick is the AVX2 function where the machine has it.
func pick(avx2, portable func(d, a, b, c *Row32)) func(d, a, b, c *Row32) {
	if haveAVX2 {
		return avx2
	}
	return portable
}

var (
	addR    = pick(addIntAVX2, add[uint32])
	madR    = pick(madAVX2, multiplyAdd[uint32])
	andR    = pick(andAVX2, bitsAnd[uint32])
	shlR    = pick(shlAVX2, shlGo)
	shrR    = pick(shrAVX2, shrGo)
	maxF    = pick(maxAVX2, maxFGo)
	widenF  = pick(widenAVX2, widenFGo)
	halfF   = pick(halfAVX2, halfFGo)
	halvesF = pick(halvesAVX2, halvesFGo)
	addF    = pick(addAVX2, addFGo)
	subF    = pick(subAVX2, subFGo)
	mulF    = pick(mulAVX2, mulFGo)
	fmaF    = pick(fmaAVX2, fmaFGo)
)

func mmaF16(r []Row32, v []int32) {
	if !haveAVX2 {
		mmaF16Go(r, v)
		return
	}
	_ = v[13]
	mmaF16AVX2(&r[0], &v[0])
}

func mmaBF16(r []Row32, v []int32) {
	if !haveAVX2 {
		mmaBF16Go(r, v)
		return
	}
	_ = v[13]
	mmaBF16AVX2(&r[0], &v[0])
}
