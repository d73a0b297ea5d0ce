package tinyphysics

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// twin is the loop of one drive in plain Go and float64. The network is evaluated in float64.
type twin struct {
	t       testing.TB
	network *ir.Graph
	bins    []float64
	margin  []float64 // of each row: how far the uniform number is from the nearest cumulative probability
}

func (w *twin) token(x float64) int64 {
	i, _ := slices.BinarySearch(w.bins, math.Max(-5, math.Min(5, x)))
	return int64(i)
}

// sample draws the token of a row from what the network gives for the last rows and lateral accelerations.
func (w *twin) sample(rows [][4]float64, past []float64, uniform float64) int64 {
	states, tokens := ir.NewArray(ir.T(ir.Float32, 1, window, features)), ir.NewArray(ir.T(ir.Int64, 1, window))
	for i, r := range rows {
		for k, x := range r {
			states.F[i*features+k] = float64(float32(x))
		}
		tokens.I[i] = w.token(past[i])
	}
	return w.draw(map[string]*ir.Array{networkStates: states, networkTokens: tokens}, uniform)
}

// draw is the token that a uniform number draws of what the network sees.
func (w *twin) draw(seen map[string]*ir.Array, uniform float64) int64 {
	out, err := ir.Evaluate(w.t.Context(), w.network, seen, ir.EvalOptions{})
	require.NoError(w.t, err)
	y := out[networkOutput].F[(window-1)*vocabulary:]
	most, sum := slices.Max(y), 0.0
	p := make([]float64, len(y))
	for k := range y {
		p[k] = math.Exp((y[k] - most) / 0.8)
		sum += p[k]
	}
	token, cumulative, margin := int64(0), 0.0, 1.0
	for _, x := range p {
		cumulative += x / sum
		margin = min(margin, math.Abs(cumulative-uniform))
		if cumulative <= uniform {
			token++
		}
	}
	w.margin = append(w.margin, margin)
	return min(token, vocabulary-1)
}

func (w *twin) rollout(d *Drives, i int) (steer, lataccel []float64, token []int64, costs [3]float64) {
	target := d.Target[i]
	steer, lataccel, token = slices.Clone(d.SteerLog[i]), slices.Clone(target), make([]int64, len(target))
	rows := make([][4]float64, len(target))
	current, sum, before := target[window-1], 0.0, 0.0
	for row := range target {
		if row >= window {
			deviation := target[row] - current
			sum += deviation
			pid := 0.195*deviation + 0.1*sum - 0.053*(deviation-before)
			before = deviation
			if row >= 100 {
				steer[row] = pid
			}
			steer[row] = math.Max(-2, math.Min(2, steer[row]))
		}
		rows[row] = [4]float64{steer[row], d.Roll[i][row], d.V[i][row], d.A[i][row]}
		if row < window {
			continue
		}
		token[row] = w.sample(rows[row-window+1:row+1], lataccel[row-window:row], d.Uniform[i][row])
		next := math.Max(current-0.5, math.Min(current+0.5, w.bins[token[row]]))
		if row >= 100 {
			lataccel[row] = next
		}
		current = lataccel[row]
	}
	end := min(len(target), 500)
	for row := 100; row < end; row++ {
		costs[0] += 100 * math.Pow(target[row]-lataccel[row], 2) / float64(end-100)
		if row > 100 {
			costs[1] += 100 * math.Pow((lataccel[row]-lataccel[row-1])/0.1, 2) / float64(end-101)
		}
	}
	costs[2] = 50*costs[0] + costs[1]
	return steer, lataccel, token, costs
}

// TestRollout_EqualsAPlainLoop compares drives with a loop in Go and float64, up to the first token whose uniform
// number is within 1e-5 of a cumulative probability and that differs. Drives of the second rollout find what the first
// one's left on the device; one is long enough for costs to end before it does.
func TestRollout_EqualsAPlainLoop(t *testing.T) {
	fulltest.Long(t)
	m := smallNetwork(t)
	network, err := onnx.Import(m, onnx.ImportOptions{Batch: 1})
	require.NoError(t, err)
	v := open(t, m, Options{Batch: 2})
	for _, d := range []Drives{drawn(1, 3, 130), drawn(2, 1, 510)} {
		got, err := v.Rollout(t.Context(), d)
		require.NoError(t, err)
		whole := 0
		for i := range d.Target {
			w := &twin{t: t, network: network, bins: Bins()}
			steer, lataccel, token, costs := w.rollout(&d, i)
			if first := differs(got.Token[i], token); first >= 0 {
				require.Less(t, w.margin[first-window], 1e-5, "drive %d, row %d: token %d, want %d", i, first,
					got.Token[i][first], token[first])
				continue
			}
			whole++
			require.InDeltaSlice(t, steer, got.Steer[i], 1e-9)
			require.InDeltaSlice(t, lataccel, got.Lataccel[i], 1e-9)
			require.InDeltaSlice(t, costs[:], []float64{got.LataccelCost[i], got.JerkCost[i], got.TotalCost[i]}, 1e-9*costs[2])
		}
		require.Positive(t, whole, "no drive without a differing token")
	}
}

// TestRollout_GivesADriveTheSameBitsInAnyCompany runs the same drive alone and among others.
func TestRollout_GivesADriveTheSameBitsInAnyCompany(t *testing.T) {
	fulltest.Long(t)
	batch, counts := 4, []int{1, 4, 7}
	if fulltest.Runs(t.Name()) {
		batch, counts = 64, []int{1, 7, 64, 1024}
	}
	v := open(t, smallNetwork(t), Options{Batch: batch})
	all := drawn(3, counts[len(counts)-1], MinRows+3)
	want, err := v.Rollout(t.Context(), all)
	require.NoError(t, err)
	for _, n := range counts[:len(counts)-1] {
		for _, from := range []int{0, len(all.Target) - n} {
			s := func(x [][]float64) [][]float64 { return x[from : from+n] }
			some := Drives{s(all.Roll), s(all.V), s(all.A), s(all.Target), s(all.SteerLog), s(all.Uniform)}
			got, err := v.Rollout(t.Context(), some)
			require.NoError(t, err)
			part := &Result{s(want.Steer), s(want.Lataccel), want.Token[from : from+n], want.LataccelCost[from : from+n],
				want.JerkCost[from : from+n], want.TotalCost[from : from+n]}
			require.Equal(t, part, got, "%d drives from %d on", n, from)
		}
	}
}

// TestRollout_GivesADriveTheSameBitsInBatchesOfAnySize runs the same drives through programs for batches of several sizes:
// of a small network, or with SPARK_FULL=1 of the published one.
func TestRollout_GivesADriveTheSameBitsInBatchesOfAnySize(t *testing.T) {
	fulltest.Long(t)
	var m *onnx.Model
	var all Drives
	sizes := map[int]int{1: 2, 7: 9} // of a batch, and how many drives
	if fulltest.Runs(t.Name()) {
		var published Drives
		m, published, _ = golden(t)
		all = published.redrawn([]int{0, 1, 2, 3, 4, 5, 6, 7}, 128, 3).first(1024, MinRows+3)
		sizes[64], sizes[1024] = 64, 1024
	} else {
		m, all = smallNetwork(t), drawn(3, 32, MinRows+3)
	}
	want, err := open(t, m, Options{Batch: 32}).Rollout(t.Context(), all)
	require.NoError(t, err)
	for size, n := range sizes {
		got, err := open(t, m, Options{Batch: size}).Rollout(t.Context(), all.first(n, MinRows+3))
		require.NoError(t, err)
		require.Equal(t, &Result{want.Steer[:n], want.Lataccel[:n], want.Token[:n], want.LataccelCost[:n], want.JerkCost[:n],
			want.TotalCost[:n]}, got, "batches of %d", size)
	}
}

// TestStep_PassesTheChecks runs rows with every check of the CPU device: bounds, undefined reads, races, missing edges.
func TestStep_PassesTheChecks(t *testing.T) {
	r, err := Compile(t.Context(), smallNetwork(t), Options{Batch: 3, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	v, err := Open(t.Context(), r.Program, d)
	require.NoError(t, err)
	defer v.Close()
	drives := drawn(5, 3, MinRows)
	for row := range 2 {
		require.NoError(t, v.step(t.Context(), &drives, newResult(3, MinRows), 0, row))
	}
}

// TestRollout_RefusesDrives names series, drive and row.
func TestRollout_RefusesDrives(t *testing.T) {
	v := &Vehicle{batch: 1}
	for name, c := range map[string]struct {
		change func(d *Drives)
		want   string
	}{
		"no drives":        {func(d *Drives) { *d = Drives{} }, "no drives: give one or more"},
		"too few rows":     {func(d *Drives) { *d = drawn(1, 1, 101) }, "drive 0 has 101 rows: costs need 102 or more"},
		"a series missing": {func(d *Drives) { d.Roll = nil }, "roll has 0 drives and target 2: give as many"},
		"a short drive":    {func(d *Drives) { d.V[1] = d.V[1][:7] }, "v of drive 1 has 7 rows and target of drive 0 102"},
		"NaN":              {func(d *Drives) { d.A[1][3] = math.NaN() }, "a of drive 1 is NaN in row 3: it must be finite"},
		"infinite":         {func(d *Drives) { d.Target[0][5] = math.Inf(-1) }, "target of drive 0 is -Inf in row 5: it"},
		"a uniform number": {func(d *Drives) { d.Uniform[0][9] = 1 }, "uniform of drive 0 is 1 in row 9: it must be in"},
	} {
		t.Run(name, func(t *testing.T) {
			d := drawn(1, 2, MinRows)
			c.change(&d)
			_, err := v.Rollout(t.Context(), d)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestRollout_MarksADriveThatDiverges: one drive's speed is beyond f32, so the network's logits are NaN; the other is
// as if alone.
func TestRollout_MarksADriveThatDiverges(t *testing.T) {
	v := open(t, smallNetwork(t), Options{Batch: 2})
	d := drawn(4, 2, MinRows)
	good, err := v.Rollout(t.Context(), d)
	require.NoError(t, err)
	d.V[0][101] = 1e300
	got, err := v.Rollout(t.Context(), d)
	require.NoError(t, err)
	require.True(t, math.IsNaN(got.TotalCost[0]) && math.IsNaN(got.Lataccel[0][101]))
	require.False(t, math.IsNaN(got.Lataccel[0][100]))
	require.Equal(t, good.TotalCost[1], got.TotalCost[1])
	got, err = v.Rollout(t.Context(), drawn(4, 2, MinRows))
	require.NoError(t, err)
	require.Equal(t, good, got, "nothing of it is left in the next drive")
}

// TestCompile_RefusesOtherNetworks names what of the contract is missing.
func TestCompile_RefusesOtherNetworks(t *testing.T) {
	network := func(build func(b *onnx.Builder)) *onnx.Model {
		b := onnx.NewBuilder("other", 17)
		build(b)
		m, err := b.Model()
		require.NoError(t, err)
		m.Path = "other.onnx"
		return m
	}
	input := func(b *onnx.Builder, rows int, output string) {
		x := b.Input(networkStates, ir.Float32, "b", rows, features)
		b.Node("Relu", []string{x}, []string{output})
		b.Output(output, ir.Float32, "b", rows, features)
	}
	for name, c := range map[string]struct {
		m     *onnx.Model
		batch int
		want  string
	}{
		"no tokens": {network(func(b *onnx.Builder) { input(b, window, networkOutput) }), 1,
			"other.onnx: not a lateral-dynamics network: input tokens missing: its inputs are states, its outputs output; give"},
		"no output": {network(func(b *onnx.Builder) {
			input(b, window, "y")
			b.Input(networkTokens, ir.Int64, "b", window)
		}), 1,
			"output output missing: its inputs are states, tokens, its outputs y"},
		"another window": {network(func(b *onnx.Builder) {
			input(b, 30, networkOutput)
			b.Input(networkTokens, ir.Int64, "b", window)
		}), 1,
			"states is f32[1,30,4] and must be f32[1,20,4] for 1 drives"},
		"one input more": {network(func(b *onnx.Builder) {
			input(b, window, networkOutput)
			b.Input(networkTokens, ir.Int64, "b", window)
			b.Input("desire", ir.Float32, "b", 8)
		}), 1, "input desire has nothing that feeds it"},
		"a batch below 1": {smallNetwork(t), -1, "small.onnx: a batch of -1 drives: give 1 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(t.Context(), c.m, Options{Batch: c.batch})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestOpen_RefusesOtherPrograms: a program that was not made by Compile.
func TestOpen_RefusesOtherPrograms(t *testing.T) {
	r, err := Compile(t.Context(), smallNetwork(t), Options{Batch: 1})
	require.NoError(t, err)
	p := *r.Program
	p.Inputs = p.Inputs[:1]
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	_, err = Open(t.Context(), &p, d)
	require.ErrorContains(t, err, "small.onnx: the program has no input uniform: compile the network with")
}
