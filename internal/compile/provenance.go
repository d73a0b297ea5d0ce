package compile

import (
	"crypto/sha256"
	"fmt"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/runtime"
)

// Provenance says of the program which file it was compiled from, its multiply-accumulates, what it was calibrated on, and the
// lowest cosine that was measured. Version and flags are the caller's.
func (r *Result) Provenance() runtime.Provenance {
	p := runtime.Provenance{SHA256: r.digest, Checkpoint: r.Source.Meta["model_checkpoint"], MACs: multiplications(r.Source)}
	a := r.Accuracy
	if a == nil {
		return p
	}
	if len(r.calibrated) > 0 {
		h := sha256.New()
		for _, d := range calibrate.Digests(r.calibrated) {
			fmt.Fprintln(h, d)
		}
		p.Calibration = &runtime.Calibration{Inputs: len(r.calibrated), Generated: a.Generated, SHA256: fmt.Sprintf("%x", h.Sum(nil))}
	}
	for _, set := range a.Sets {
		for _, q := range set.Slices {
			if p.Accuracy == nil || q.Cosine < p.Accuracy.Cosine {
				p.Accuracy = &runtime.Accuracy{Budget: a.MinCosine, Cosine: q.Cosine, Of: q.Name, On: set.Name}
			}
		}
	}
	return p
}
