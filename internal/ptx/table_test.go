package ptx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
)

// TestRowsAreWhole: what an instruction computes has a meaning of a type that lanes.go lists, and nothing else has one.
func TestRowsAreWhole(t *testing.T) {
	for _, op := range Opcodes() {
		d := Lookup(op)
		var ok bool
		switch d.Does {
		case Compute:
			switch d.Eval.(type) {
			case func(d, a, b, c *Row32), func(d, a, b, c *Row64), func(d *Row64, a, b *Row32, c *Row64), func(d *Row32, a *Row64),
				func(d, a *Row64, b *Row32), func(a, b *Row32) uint32, func(a, b *Row64) uint32, func(d, a, b *Row32, p uint32),
				func(d, a, b *Row64, p uint32), func(a, b uint32) uint32, func(imm int64) func(d, a, b, c *Row32):
				ok = true
			}
		case Multiply:
			_, ok = d.Eval.(mmaFunc)
		case Shuffle:
			_, ok = d.Eval.(Source)
		case Atomic, Reduce:
			_, ok = d.Eval.(Combine)
		case MoveMatrix:
			_, ok = d.Eval.(func(d, a *Row32))
		case LoadMatrix:
			_, ok = d.Eval.(Transposed)
		case CopyAsync:
			_, ok = d.Eval.(CopySizes)
		default:
			ok = d.Eval == nil
		}
		require.True(t, ok, "%s has a meaning of type %T", op, d.Eval)
		require.Equal(t, d.Does == Store || d.Does == Atomic || d.Does == StoreMatrix || d.Does == CopyAsync, d.Writes(), op)
		require.Equal(t, d.Does == Compute, d.Kind < KindLoad, op)
	}
}

// TestOrdersAreTheirNames: what orders memory says so, and nothing else does.
func TestOrdersAreTheirNames(t *testing.T) {
	for _, op := range Opcodes() {
		d, want := Lookup(op), Plain
		switch {
		case d.Does == Fence: // its action says it
		case strings.Contains(op, ".acq_rel."):
			want = AcqRel
		case strings.Contains(op, ".acquire."):
			want = Acquire
		case strings.Contains(op, ".release."):
			want = Release
		case d.Does == Atomic || strings.Contains(op, ".relaxed."):
			want = Relaxed
		}
		require.Equal(t, want, d.Order, op)
	}
}

// TestTargetsHaveTheFeatures holds the table of targets against the rows that need their features.
func TestTargetsHaveTheFeatures(t *testing.T) {
	for _, tg := range target.All() {
		for _, f := range []struct {
			need Feature
			has  bool
		}{{DependentLaunch, tg.DependentLaunch}, {FP8, tg.Multiplies("e4m3")}, {FP4, tg.Multiplies("e2m1")}} {
			for _, op := range Opcodes() {
				if d := Lookup(op); d.Need == f.need {
					require.Equal(t, f.has, d.Available(tg.Name+"a", Version{99, 0}) == nil, "%s on %s", op, tg.Name)
				}
			}
		}
	}
}
