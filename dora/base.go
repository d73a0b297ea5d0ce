package dora

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// baseStorage is how frozen weights are stored under a name of StepOptions.Base: as the narrowest weights of the precision.
func baseStorage(name string) (precision.Operand, error) {
	if name == "" {
		return precision.Operand{}, nil
	}
	p, err := precision.Lookup(name)
	if err != nil || !p.Calibrates() {
		return precision.Operand{}, fmt.Errorf("frozen weights cannot be stored as %q: give %s, or nothing", name, precision.Calibrating())
	}
	return p.Candidates[0].Weights, nil
}

// base is how frozen weights are stored under a name of StepOptions.Base: that of a storage, or what RoundBase gave.
func (m *Model) base(name string) (passes.Base, error) {
	storage, digest, fitted := strings.Cut(name, fittedMark)
	to, err := baseStorage(storage)
	if err != nil {
		return passes.Base{}, err
	}
	b := passes.Base{Operand: to, Rounded: m.rounded[name]}
	if fitted && b.Rounded == nil {
		return b, fmt.Errorf("weights in %s were rounded on inputs to numbers of the digest %s: round them again on the same inputs, as spark-dora merge --calibrate does", storage, digest)
	}
	return b, nil
}

// fittedMark stands between a storage and the digest of the numbers that were fitted to inputs.
const fittedMark = ":"

// RoundBase rounds the model's weights to fp8, fp6 or nvfp4 so that on inputs its layers give nearly what they
// gave: each weight compensates for the errors of those before it, by the second moments of what the layer reads
// (Frantar and others 2022, GPTQ). It returns the name of the result, for StepOptions.Base and SlotOptions.Base:
// the storage and a digest of the numbers, which adapters trained with them carry. The same inputs give the same
// numbers, on every machine.
func (m *Model) RoundBase(ctx context.Context, storage string, inputs []map[string]*ir.Array) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("%s: %w", m.File.Path, err) }
	if storage == "" {
		return fail(errors.New("weights are rounded to a storage: name it"))
	}
	if _, err := baseStorage(storage); err != nil {
		return fail(err)
	}
	channels := map[string]int{}
	for _, w := range m.Weights {
		if !w.Depthwise() {
			channels[w.Name] = w.In()
		}
	}
	all, err := compile.RoundBase(ctx, m.graph, storage, inputs, channels)
	if err != nil {
		return fail(err)
	}
	rounded, digest := map[string]passes.RoundedRows{}, sha256.New()
	for _, w := range m.Weights {
		r, ok := all[w.Name]
		if !ok || !slices.Equal(r.Exact, w.Rows()) {
			continue // the graph computes with another weight: it is rounded to the nearest numbers
		}
		rounded[w.Name] = r.RoundedRows
		for _, xs := range [][]float64{r.Numbers, r.Blocks, r.Scales} {
			for _, x := range xs {
				if err := binary.Write(digest, binary.LittleEndian, x); err != nil {
					return fail(err)
				}
			}
		}
	}
	name := storage + fittedMark + hex.EncodeToString(digest.Sum(nil))[:12]
	if m.rounded == nil {
		m.rounded = map[string]map[string]passes.RoundedRows{}
	}
	m.rounded[name] = rounded
	return name, nil
}

// RoundAgain rounds the model's weights as those that an adapter was trained with, if these were fitted to inputs.
// Other inputs than then are an error.
func (m *Model) RoundAgain(ctx context.Context, a *Adapter, inputs []map[string]*ir.Array) error {
	for _, l := range a.Layers {
		storage, _, fitted := strings.Cut(l.Base, fittedMark)
		if !fitted || m.rounded[l.Base] != nil {
			continue
		}
		got, err := m.RoundBase(ctx, storage, inputs)
		if err != nil {
			return err
		}
		if got != l.Base {
			return fmt.Errorf("%s: on these inputs weights become %s, and the adapter was trained with %s: give the inputs that they were rounded on then", m.File.Path, got, l.Base)
		}
	}
	return nil
}

// base is how a step stores frozen weights.
type base struct {
	passes.Base
	name string
}

// store says how frozen weights are stored. Adapters trained with rounded weights correct their errors, and mean
// nothing with others.
func (s *Step) store(name string) (err error) {
	if s.base.Base, err = s.model.base(name); err != nil {
		return err
	}
	s.base.name = name
	for _, l := range s.Adapter.Layers {
		if l.Base != "" && l.Base != name {
			return fmt.Errorf("layer %s of the adapter was trained with weights stored as %s: give that as Base, not %q", l.Module, l.Base, name)
		}
	}
	return nil
}

// Stored are the weights [Out, Row] as a step has them whose options say Base: rounded, or the file's own. Depthwise convolutions
// keep theirs.
func (w *Weight) Stored(base string) ([]float64, error) {
	to, err := w.model.base(base)
	if err != nil || to.Format == nil || w.Depthwise() {
		return w.Rows(), err
	}
	r, ok := to.Rounded[w.Name]
	if !ok {
		r = passes.RoundRows(to.Operand, w.Rows(), w.Out, w.In(), ir.T(ir.Bool, w.Taps...).Numel())
	}
	return r.Values(), nil
}
