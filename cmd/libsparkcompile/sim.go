//go:build cgo && linux

package main

/*
#include <stdlib.h>
#define SPARKCOMPILE_NO_PROTOTYPES
#include "sparkcompile.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/cmd/internal/library"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// simOf is what a handle of a simulation stands for. A handle that is none, or was deleted, is a closed one.
func simOf(h C.sparkcompile_handle) (s *library.Sim, err error) {
	defer func() {
		if recover() != nil {
			err = library.ErrClosed
		}
	}()
	s, ok := cgo.Handle(h).Value().(*library.Sim)
	if !ok {
		return nil, library.ErrClosed
	}
	return s, nil
}

// array is memory of C's as a slice.
func array[In, T any](what string, p *In, n int) ([]T, error) {
	if p == nil {
		return nil, fmt.Errorf("%s is NULL: give a place for %d values", what, n)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), n), nil
}

// simulate runs a function of a simulation on a goroutine of its own.
func simulate(handle C.sparkcompile_handle, text **C.char, run func(ctx context.Context, s *library.Sim) error) C.int32_t {
	return answer(text, func() error {
		s, err := simOf(handle)
		if err != nil {
			return err
		}
		return onGoroutine(func() error { return run(context.Background(), s) })
	})
}

//export sparkcompile_sim_open
func sparkcompile_sim_open(request *C.char, handle *C.sparkcompile_handle, description **C.char, text **C.char) C.int32_t {
	return answer(text, func() error {
		if request == nil || handle == nil || description == nil {
			return errors.New("request, handle or json is NULL: give a text and places for the others")
		}
		*handle, *description = 0, nil
		environment()
		var opt library.SimOptions
		if err := memory.UnmarshalStrict([]byte(C.GoString(request)), &opt); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		var s *library.Sim
		err := onGoroutine(func() (err error) {
			s, err = library.OpenSim(context.Background(), opt)
			return err
		})
		if err != nil {
			return err
		}
		raw, err := json.Marshal(s.Describe())
		if err != nil {
			return errors.Join(err, s.Close())
		}
		*description = C.CString(string(raw))
		*handle = C.sparkcompile_handle(cgo.NewHandle(s))
		return nil
	})
}

//export sparkcompile_sim_close
func sparkcompile_sim_close(handle C.sparkcompile_handle, text **C.char) C.int32_t {
	return answer(text, func() error {
		s, err := simOf(handle)
		if err != nil {
			return err
		}
		if err = s.Close(); !errors.Is(err, library.ErrBusy) {
			cgo.Handle(handle).Delete()
		}
		return err
	})
}

//export sparkcompile_sim_params
func sparkcompile_sim_params(handle C.sparkcompile_handle, params *C.double, text **C.char) C.int32_t {
	return simulate(handle, text, func(_ context.Context, s *library.Sim) error {
		out, err := array[C.double, float64]("params", params, s.Loops()*len(scenario.Params))
		if err == nil {
			s.Params(out)
		}
		return err
	})
}

//export sparkcompile_sim_run
func sparkcompile_sim_run(handle C.sparkcompile_handle, algorithm *C.char, metrics *C.double, text **C.char) C.int32_t {
	return simulate(handle, text, func(ctx context.Context, s *library.Sim) error {
		out, err := array[C.double, float64]("metrics", metrics, s.Loops()*len(scenario.Metrics))
		if err != nil {
			return err
		}
		if algorithm == nil {
			return errors.New("algorithm is NULL: give a name")
		}
		return s.Run(ctx, C.GoString(algorithm), out)
	})
}

//export sparkcompile_sim_reset
func sparkcompile_sim_reset(handle C.sparkcompile_handle, numbers *C.int64_t, seed C.uint64_t, text **C.char) C.int32_t {
	return simulate(handle, text, func(ctx context.Context, s *library.Sim) error {
		in, err := array[C.int64_t, int64]("numbers", numbers, s.Loops())
		if err != nil {
			return err
		}
		return s.Reset(ctx, in, uint64(seed))
	})
}

//export sparkcompile_sim_observe
func sparkcompile_sim_observe(handle C.sparkcompile_handle, observations *C.float, text **C.char) C.int32_t {
	return simulate(handle, text, func(ctx context.Context, s *library.Sim) error {
		out, err := array[C.float, float32]("observations", observations, s.Loops()*len(scenario.Observations))
		if err != nil {
			return err
		}
		return s.Observe(ctx, out)
	})
}

//export sparkcompile_sim_step
func sparkcompile_sim_step(handle C.sparkcompile_handle, commands *C.float, alive *C.uint8_t, metrics *C.double, text **C.char) C.int32_t {
	return simulate(handle, text, func(ctx context.Context, s *library.Sim) error {
		in, err := array[C.float, float32]("commands", commands, 2*s.Loops())
		if err != nil {
			return err
		}
		goes, err := array[C.uint8_t, uint8]("alive", alive, s.Loops())
		if err != nil {
			return err
		}
		out, err := array[C.double, float64]("metrics", metrics, s.Loops()*len(scenario.Metrics))
		if err != nil {
			return err
		}
		return s.Step(ctx, in, goes, out)
	})
}
