package calibrate

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestProductsAreTheHeads: the anchors of small models' layers, computed as products, are what the reference makes of the
// regions up to them, also with other weights. In a batch the heads of a model are members that all read the same.
func TestProductsAreTheHeads(t *testing.T) {
	rng := rand.New(rand.NewSource(5))
	inPlace, gathered, biased, shared := 0, 0, 0, 0
	for _, of := range []struct {
		name    string
		samples int
	}{{"vision", 0}, {"policy", 0}, {"dmonitoring", 0}, {"dmonitoring", 3}} {
		g, in := batched(t, of.name, "fp8", 2, of.samples)
		c, err := New(g, "fp8", in, Reference{}, nil)
		require.NoError(t, err)
		l := c.walk.lane(2)
		for i, s := range c.walk.steps {
			if p := s.product; p != nil {
				fake := &ir.Tensor{Type: s.site.Weights().Type, Data: make([]byte, s.site.Weights().Type.Bytes())}
				for i := range floats(fake) {
					floats(fake)[i] = rng.Float32() - .5
				}
				for _, s := range []*step{s, s.with(fake)} {
					operands := l.all(s.node, 0, 2)
					pool := &BufferPool{Least: 1}
					rubbish := pool.Tensor(ir.T(ir.Uint8, len(operands)*p.out.Bytes()+1<<10))
					copy(rubbish.Data, bytes.Repeat([]byte{0xff}, len(rubbish.Data)))
					pool.Give([]*ir.Tensor{rubbish})
					got, err := s.anchors(t.Context(), Reference{}, operands, pool)
					require.NoError(t, err)
					kernel := *s
					kernel.product = nil
					want, err := kernel.anchors(t.Context(), Reference{}, operands, nil)
					require.NoError(t, err)
					require.Equal(t, want[0].Type, got[0].Type, s.node.Name)
					require.Less(t, distance(got, want), 1e-5, s.node.Name)
				}
				if p.inPlace {
					inPlace++
				} else {
					gathered++
				}
				if p.bias != nil {
					biased++
				}
				if s.node.Region.Members > 0 && p.memberStride == 0 {
					shared++
				}
			}
			outs, err := c.exactStep(t.Context(), i, 2, l, nil)
			require.NoError(t, err)
			l.put(s.node, outs)
		}
	}
	require.Positive(t, inPlace)
	require.Positive(t, gathered)
	require.Positive(t, biased)
	require.Positive(t, shared)
	t.Log(inPlace, gathered, biased, shared)
}
