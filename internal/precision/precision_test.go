package precision

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookupKnowsNamesAndAliases(t *testing.T) {
	for given, want := range map[string]string{"file": File, "fp32": FP32, "nvfp4": NVFP4, "fp4": NVFP4} {
		p, err := Lookup(given)
		require.NoError(t, err)
		require.Equal(t, want, p.Name)
	}
	for _, bad := range []string{"", "int4", "FP16"} {
		_, err := Lookup(bad)
		require.ErrorContains(t, err, "use "+List("or"), bad)
	}
}

func TestNamesAsASentence(t *testing.T) {
	require.Regexp(t, "^file, fp32, fp16, bf16, fp8.* and nvfp4$", List("and"))
	require.NotContains(t, On(12, 1), File, "what tensor cores have")
	require.Regexp(t, "^fp8.* and nvfp4$", Calibrating())
}

// TestLaddersEndAtHalf: a layer that no narrower format suits has one; a precision that a target can only store says so.
func TestLaddersEndAtHalf(t *testing.T) {
	for _, p := range All() {
		require.Equal(t, p.Multiplies != "", p.Stored != "", p.Name)
		if !p.Calibrates() {
			continue
		}
		require.Equal(t, Half, p.Candidates[len(p.Candidates)-1], p.Name)
		for _, l := range p.Candidates {
			require.Contains(t, Layers(), l, p.Name)
		}
	}
	require.Contains(t, Layers(), fp8Weights)
	for _, l := range Layers() {
		if split, ok := l.Split(); ok {
			require.True(t, split.Weights.HiLo, l.Name)
			require.Equal(t, l.Activations, split.Activations, l.Name)
		}
		if l.Weights.HiLo { // with 16-bit activations they would be 16-bit weights
			continue
		}
		w := l.WeightsOnly()
		require.Equal(t, l.Weights, w.Weights, l.Name)
		require.False(t, w.Activations.Narrow(), l.Name)
	}
}

func TestPrecision_OrdersByError(t *testing.T) {
	for name, want := range map[string]string{FP32: "", File: "fp32", FP16: "fp32", BF16: "fp16 or fp32", FP8: "fp16 or fp32", NVFP4: "fp16 or fp32", "int4": ""} {
		require.Equal(t, want, Wider(name), name)
	}
}

func TestBoundsOfAnOutput(t *testing.T) {
	for in, want := range map[string][2]float64{
		"fp32 f32": {0.9999999, 1e-4}, "fp32 f64": {0.9999999, 1e-4}, "fp32 i64": {0.9999999, 1e-4},
		"fp32 f16": {0.9999998, 1e-4 + 1./2048}, "fp32 bf16": {0.999992, 1e-4 + 1./256},
		"fp16 f16": {0.9999, 1e-2}, "fp16 f32": {0.9999, 1e-2}, "file f16": {0.9999, 1e-2}, "fp8 f16": {0.9999, 2e-2},
	} {
		name, output, _ := strings.Cut(in, " ")
		p, err := Lookup(name)
		require.NoError(t, err)
		cosine, relL2 := p.Bounds(output)
		require.InDelta(t, want[0], cosine, 1e-7, in)
		require.InDelta(t, want[1], relL2, 1e-12, in)
	}
}
