package gputest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
)

// openDevice opens the device that $SPARK_DEVICE names, by default the GPU. Without one the test is skipped, but not where it is named, as
// the bundle's script does: skipped tests pass.
func openDevice(tb testing.TB) hal.Device {
	tb.Helper()
	name := os.Getenv(config.DeviceVariable)
	named := name != ""
	if !named {
		name = config.CUDA
	}
	d, _, err := detect.Open(context.Background(), detect.Options{Name: name})
	if !named && (errors.Is(err, hal.ErrNoDriver) || errors.Is(err, hal.ErrNoDevice)) {
		tb.Skipf("no GPU (%v)", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}
