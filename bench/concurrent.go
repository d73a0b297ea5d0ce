package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/runtime"
)

// Concurrent measures all models running at the same time, each with its own session, stream and goroutine.
type Concurrent struct {
	// Round is the time for every model to run once, all starting together.
	Round  report.Summary `json:"round"`
	Models []OneOf        `json:"models"`
	Rounds []float64      `json:"rounds_ms"`
}

// OneOf is the latency of one model while the others ran.
type OneOf struct {
	Model     string `json:"model"`
	Precision string `json:"precision"`
	report.Summary
}

// Together runs the programs concurrently.
func Together(ctx context.Context, programs []*runtime.Program, d hal.Device, opt Options) (*Concurrent, error) {
	var sessions []*runtime.Session
	for _, p := range programs {
		s, err := Open(ctx, p, d, opt.Target)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	out := &Concurrent{}
	times := make([][]float64, len(sessions))
	for round := range opt.Warmup + opt.Runs {
		took, each, err := once(ctx, sessions)
		if err != nil {
			return nil, err
		}
		if round < opt.Warmup {
			continue
		}
		out.Rounds = append(out.Rounds, took)
		for i, t := range each {
			times[i] = append(times[i], t)
		}
	}
	out.Round = report.Summarise(out.Rounds)
	for i, p := range programs {
		out.Models = append(out.Models, OneOf{p.Model, p.Precision, report.Summarise(times[i])})
	}
	return out, nil
}

// once runs every session once, all at the same time; times are in milliseconds.
func once(ctx context.Context, sessions []*runtime.Session) (whole float64, each []float64, err error) {
	each = make([]float64, len(sessions))
	errs := make([]error, len(sessions))
	start := make(chan struct{})
	var begin time.Time
	var wait sync.WaitGroup
	for i, s := range sessions {
		wait.Go(func() {
			<-start
			errs[i] = s.Run(ctx)
			each[i] = since(begin)
		})
	}
	begin = time.Now()
	close(start)
	wait.Wait()
	return since(begin), each, errors.Join(errs...)
}
