package tinyphysics

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// Record writes what the network saw in the given rows, each from row 20 on, of the first batch of drives that gave r: a
// .npz file a row in a directory, with states, f32 [batch, 20, 4], and tokens, i64 [batch, 20]. Precisions are
// calibrated on such files.
func (d Drives) Record(r *Result, batch int, rows []int, dir string) error {
	length, err := d.check()
	if err != nil {
		return err
	}
	if batch < 1 || batch > len(d.Target) || len(r.Steer) != len(d.Target) {
		return fmt.Errorf("a batch of %d of %d drives and the results of %d: give as many results as drives, and no larger "+
			"batch", batch, len(d.Target), len(r.Steer))
	}
	for _, row := range rows {
		if row < window || row >= length {
			return fmt.Errorf("row %d of drives of %d rows: the network sees the %d rows before one, give %d to %d", row, length,
				window, window, length-1)
		}
		states := &npy.Array{DType: ir.Float32.String(), Shape: []int{batch, window, features}}
		tokens := &npy.Array{DType: ir.Int64.String(), Shape: []int{batch, window}}
		for i := range batch {
			for k := row - window + 1; k <= row; k++ {
				for _, x := range []float64{r.Steer[i][k], d.Roll[i][k], d.V[i][k], d.A[i][k]} {
					states.Data = binary.LittleEndian.AppendUint32(states.Data, math.Float32bits(float32(x)))
				}
				if math.IsNaN(r.Lataccel[i][k]) {
					return fmt.Errorf("drive %d diverged by row %d: record drives that did not", i, k)
				}
				tokens.Data = binary.LittleEndian.AppendUint64(tokens.Data, uint64(tokenOf(r.Lataccel[i][k-1])))
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("row%05d.npz", row))
		if err := npy.WriteZip(path, map[string]*npy.Array{networkStates: states, networkTokens: tokens}); err != nil {
			return err
		}
	}
	return nil
}

// tokenOf is the index of the first bin that is not below a lateral acceleration in m/s².
func tokenOf(x float64) int {
	i, _ := slices.BinarySearch(Bins(), max(-maxLataccel, min(maxLataccel, x)))
	return i
}
