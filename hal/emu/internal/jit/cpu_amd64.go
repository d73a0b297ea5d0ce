//go:build linux

package jit

func cpuid(leaf, sub uint32) (a, b, c, d uint32)

func xgetbv() uint32

// Detect returns the best level that processor and system support.
func Detect() Level {
	if top, _, _, _ := cpuid(0, 0); top < 7 {
		return None
	}
	const fma, osxsave, avx, f16c = 1 << 12, 1 << 27, 1 << 28, 1 << 29
	_, _, c, _ := cpuid(1, 0)
	if want := uint32(fma | osxsave | avx | f16c); c&want != want || xgetbv()&6 != 6 {
		return None
	}
	_, b, _, _ := cpuid(7, 0)
	const bmi1, avx2, avx512f, avx512dq, avx512bw, avx512vl = 1 << 3, 1 << 5, 1 << 16, 1 << 17, 1 << 30, 1 << 31
	if b&(bmi1|avx2) != bmi1|avx2 {
		return None
	}
	if want := uint32(avx512f | avx512dq | avx512bw | avx512vl); b&want != want || xgetbv()&0xe6 != 0xe6 {
		return AVX2
	}
	return AVX512
}
