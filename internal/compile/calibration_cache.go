package compile

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/calibrate"
)

// recall takes over what a file of findings holds, if there is one.
func (s *calibration) recall(c *calibrate.Calibration, opt *Options) error {
	if opt.CalibrationCache == "" {
		return nil
	}
	s.save = true
	saved, err := calibrate.ReadSaved(opt.CalibrationCache, c.Origin(opt.Precision))
	if saved == nil || err != nil {
		return err
	}
	if err := c.Use(saved); err != nil {
		return err
	}
	if err := saved.CheckReference(s.source.Outputs); err != nil {
		return err
	}
	if r := saved.Reference; r != nil && slices.Equal(r.Inputs, calibrate.Digests(s.all())) {
		s.exact = &reference{r.Outputs, r.Float64, r.FP32RelL2}
	}
	return nil
}

// keep writes what was found to the file of findings. An interrupted calibration is not kept.
func (s *calibration) keep(ctx context.Context, opt *Options) error {
	if s == nil || !s.save || !s.walk.Found() || ctx.Err() != nil {
		return nil
	}
	saved := s.walk.Save(s.context.Precision)
	if r := s.exact; r != nil {
		saved.Reference = &calibrate.SavedReference{Inputs: calibrate.Digests(s.all()), Outputs: r.outputs, Float64: r.float64, FP32RelL2: r.fp32RelL2}
	}
	return saved.Write(opt.CalibrationCache)
}
