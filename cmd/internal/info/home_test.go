package info

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/placement"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/simulated"
)

// remembering is a simulated GPU that shares its memory and keeps one answer.
type remembering struct {
	*simulated.Device
	kept   *placement.Placement
	graphs int
}

func (r *remembering) Copies() string { return "" }

func (r *remembering) Home() (placement.Placement, bool) {
	if r.kept == nil {
		return placement.Placement{}, false
	}
	return *r.kept, true
}

func (r *remembering) KeepHome(h placement.Placement) error {
	r.kept = &h
	return nil
}

func (r *remembering) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	r.graphs++
	return r.Device.Capture(ctx, ops)
}

// TestWeightsHomeIsMeasuredOnce: the second check reads what the first has kept.
func TestWeightsHomeIsMeasuredOnce(t *testing.T) {
	d, err := simulated.Open(cost.Of(target.Default()))
	require.NoError(t, err)
	defer d.Close()
	r := &remembering{Device: d}
	first := checkHome(t.Context(), r)
	require.Len(t, first, 1)
	require.Equal(t, passed, first[0].Status, "%+v", first)
	require.Contains(t, first[0].Detail, "memory of the device's own")
	require.Equal(t, 4, r.graphs)
	require.Equal(t, first, checkHome(t.Context(), r))
	require.Equal(t, 4, r.graphs)
	r.kept.Host = true
	require.Contains(t, checkHome(t.Context(), r)[0].Detail, "memory that the host sees")
	require.Empty(t, checkHome(t.Context(), d), "the CPU device")
}
