package recovery

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/damage"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

func device(t *testing.T) hal.Device {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// small is the generator's small driver-monitoring network, damaged.
func small(t *testing.T) (*Network, *dora.Model, []*dora.Weight) {
	ctx := context.Background()
	src, err := driving.Made("dmonitoring", driving.Small)
	require.NoError(t, err)
	file, err := onnx.Decode("dmonitoring.onnx", src.ONNX)
	require.NoError(t, err)
	g, err := onnx.Import(file, onnx.ImportOptions{})
	require.NoError(t, err)
	inputs := calibrate.Generate(g, 24)
	n, err := New(ctx, file, Largest, 16, inputs[:16], inputs[16:], device(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Teacher.Close()) })
	chosen, err := damage.Undone(n.Original, 1, 1)
	require.NoError(t, err)
	changed, err := n.Original.WithRows(damage.Mendable.Rows(n.Original, chosen, 0.03, 1))
	require.NoError(t, err)
	damaged, err := dora.Open(changed, onnx.ImportOptions{})
	require.NoError(t, err)
	return n, damaged, chosen
}

// TestADamagedNetworkIsBroughtBack: an adapter that could undo the damage is trained by distillation from the original, and
// judged on inputs that training never saw. Training twice gives the same bytes.
func TestADamagedNetworkIsBroughtBack(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	n, damaged, chosen := small(t)
	before, err := n.Unseen.Model(ctx, damaged)
	require.NoError(t, err)
	t.Log(before)
	assert.Greater(t, before.Relative, 0.2)
	assert.Less(t, before.Explained, 0.0)
	train := func(steps int) (Quality, []byte) {
		a, err := dora.Init(damaged, dora.InitOptions{Rank: damage.Rank, Targets: Names(chosen)})
		require.NoError(t, err)
		stages := []Stage{{Steps: steps, Rate: 2e-2, Forced: true, Inner: 10}}
		q, err := n.Train(ctx, damaged, a, Arithmetic{}, stages, 1, func(line string) { t.Log(line) })
		require.NoError(t, err)
		text, err := a.Encode()
		require.NoError(t, err)
		return q.Quality, text
	}
	after, _ := train(60)
	assert.Greater(t, after.Explained, 0.9)
	_, one := train(3)
	_, two := train(3)
	assert.Equal(t, one, two)
}

// TestTheLossFindsTheDamage: where the teacher's values are forced, the loss pulls at damaged layers alone.
func TestTheLossFindsTheDamage(t *testing.T) {
	fulltest.Long(t)
	n, damaged, chosen := small(t)
	n.Plain = 2
	by, err := n.Sensitivity(context.Background(), damaged, Arithmetic{}, ByLoss)
	require.NoError(t, err)
	hit := map[string]bool{}
	least := 0.0
	for _, w := range chosen {
		if hit[w.Module] = true; least == 0 || by[w.Module] < least {
			least = by[w.Module]
		}
	}
	assert.Positive(t, least)
	for _, w := range damaged.Weights {
		if !hit[w.Module] {
			assert.Less(t, by[w.Module], 1e-2*least, w.Module)
		}
	}
}

// TestTheTrainedNetworkIsBroughtBack: the trained network of the shared models, by an adapter of less than 1 % of its file
// whose layers the loss chooses, judged on golden inputs.
func TestTheTrainedNetworkIsBroughtBack(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("minutes long: make test-full")
	}
	const models = "../../../../shared/models"
	if _, err := os.Stat(models); err != nil {
		t.Skip("the trained network is not there: ", err)
	}
	ctx := context.Background()
	n, err := Trained(ctx, models, Draws, Largest, false, device(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Teacher.Close()) }()
	chosen, err := damage.Undone(n.Original, Share, 1)
	require.NoError(t, err)
	damaged, _, err := Apply(ctx, damage.Mendable, n.Original, n.Seen, chosen, Target, 1)
	require.NoError(t, err)
	before, err := n.Unseen.Model(ctx, damaged)
	require.NoError(t, err)
	assert.Less(t, before.Explained, 0.0)
	by, err := n.Sensitivity(ctx, damaged, Arithmetic{}, ByLoss)
	require.NoError(t, err)
	a, err := dora.Init(damaged, dora.InitOptions{MaxSize: Share, Rank: damage.Rank, Seed: 1, Sensitivity: by})
	require.NoError(t, err)
	after, err := n.Train(ctx, damaged, a, Arithmetic{}, Stages[:], 1, func(line string) { t.Log(line) })
	require.NoError(t, err)
	text, err := a.Encode()
	require.NoError(t, err)
	assert.Less(t, float64(len(text)), Share*float64(n.Original.Bytes))
	assert.GreaterOrEqual(t, after.Explained, 0.9)
}
