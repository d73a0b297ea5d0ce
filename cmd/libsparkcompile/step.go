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
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/spark-compile/spark-compile/cmd/internal/library"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

//export sparkcompile_drive
func sparkcompile_drive(handle C.sparkcompile_handle, frame *C.sparkcompile_frame, result *C.sparkcompile_result, text **C.char) C.int32_t {
	return answer(text, func() error {
		if frame == nil || frame.size < C.sizeof_sparkcompile_frame {
			return fmt.Errorf("frame is NULL, or frame.size is less than sizeof(sparkcompile_frame), %d", C.sizeof_sparkcompile_frame)
		}
		return step(handle, result, func(ctx context.Context, m *library.Model) error {
			f := modeld.Frame{Road: picture(frame.road), Wide: picture(frame.wide), ID: uint32(frame.id), Captured: time.Duration(frame.captured)}
			in := modeld.Inputs{Desire: int(frame.desire), RightHandDrive: frame.right_hand_drive != 0, VEgo: float64(frame.v_ego),
				LateralDelay: float64(frame.lateral_delay), LongitudinalDelay: float64(frame.longitudinal_delay)}
			if frame.calibrated != 0 {
				in.Calibration = &modeld.Calibration{RPY: rpy(frame.rpy), Road: intrinsics(frame.road_camera), WideCamera: intrinsics(frame.wide_camera)}
			}
			return m.Drive(ctx, f, in)
		})
	})
}

//export sparkcompile_monitor
func sparkcompile_monitor(handle C.sparkcompile_handle, frame *C.sparkcompile_driver_frame, result *C.sparkcompile_result, text **C.char) C.int32_t {
	return answer(text, func() error {
		if frame == nil || frame.size < C.sizeof_sparkcompile_driver_frame {
			return fmt.Errorf("frame is NULL, or frame.size is less than sizeof(sparkcompile_driver_frame), %d", C.sizeof_sparkcompile_driver_frame)
		}
		return step(handle, result, func(ctx context.Context, m *library.Model) error {
			return m.Watch(ctx, modeld.DriverFrame{Picture: picture(frame.picture), ID: uint32(frame.id), Captured: time.Duration(frame.captured)},
				modeld.MonitoringInputs{RPY: rpy(frame.rpy), RightHandDrive: frame.right_hand_drive != 0, Camera: intrinsics(frame.camera)})
		})
	})
}

// step runs a step, and copies what it says to C's memory.
func step(handle C.sparkcompile_handle, result *C.sparkcompile_result, run func(context.Context, *library.Model) error) error {
	o, err := of(handle)
	if err != nil {
		return err
	}
	if !o.mu.TryLock() {
		return library.ErrBusy
	}
	defer o.mu.Unlock()
	if err := o.run(func() error { return run(context.Background(), o.model) }); err != nil {
		return err
	}
	values, layout := o.model.Result()
	if len(values) > o.capacity {
		C.free(unsafe.Pointer(o.values))
		o.values, o.capacity = (*C.double)(C.calloc(C.size_t(len(values)), C.sizeof_double)), len(values)
	}
	copy(unsafe.Slice((*float64)(unsafe.Pointer(o.values)), o.capacity), values)
	o.count = len(values)
	if layout != o.layout {
		C.free(unsafe.Pointer(o.text))
		o.layout, o.text = layout, C.CString(layout)
		o.layoutID++
	}
	if result != nil {
		*result = C.sparkcompile_result{values: o.values, count: C.size_t(o.count), layout: o.text, layout_id: C.uint64_t(o.layoutID)}
	}
	return nil
}

//export sparkcompile_value
func sparkcompile_value(handle C.sparkcompile_handle, path *C.char, values **C.double, count *C.size_t, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if values == nil || count == nil {
			return errors.New("values or count is NULL: give places for them")
		}
		if !o.mu.TryLock() {
			return library.ErrBusy
		}
		defer o.mu.Unlock()
		at, n, err := o.model.Value(C.GoString(path))
		if err != nil {
			return err
		}
		*values, *count = (*C.double)(unsafe.Add(unsafe.Pointer(o.values), at*C.sizeof_double)), C.size_t(n)
		return nil
	})
}

// picture is a picture in C's memory.
func picture(p C.sparkcompile_picture) modeld.Picture {
	out := modeld.Picture{Width: int(p.width), Height: int(p.height), Stride: int(p.stride), UV: int(p.uv)}
	if p.data != nil {
		out.Data = unsafe.Slice((*byte)(p.data), min(p.bytes, mostBytes))
	}
	return out
}

func intrinsics(c C.sparkcompile_intrinsics) modeld.Intrinsics {
	return modeld.Intrinsics{Focal: float64(c.focal), Width: int(c.width), Height: int(c.height)}
}

func rpy(x [3]C.double) [3]float64 { return [3]float64{float64(x[0]), float64(x[1]), float64(x[2])} }

//export sparkcompile_cameras
func sparkcompile_cameras(device, sensor *C.char, cameras *C.sparkcompile_intrinsics, text **C.char) C.int32_t {
	return answer(text, func() error {
		if cameras == nil {
			return errors.New("cameras is NULL: give a place for three")
		}
		c, err := modeld.CamerasOf(C.GoString(device), C.GoString(sensor))
		if err != nil {
			return err
		}
		for i, x := range []modeld.Intrinsics{c.Road, c.Wide, c.Driver} {
			unsafe.Slice(cameras, 3)[i] = C.sparkcompile_intrinsics{focal: C.double(x.Focal), width: C.int32_t(x.Width), height: C.int32_t(x.Height)}
		}
		return nil
	})
}
