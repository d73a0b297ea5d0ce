//go:build !(linux && (amd64 || arm64))

package cuda

import (
	"fmt"
	"runtime"

	"github.com/spark-compile/spark-compile/hal"
)

// Options chooses driver and device.
type Options struct {
	Library string
	Ordinal int
}

// Open reports that there is no driver for this platform.
func Open(Options) (hal.Device, error) {
	return nil, fmt.Errorf("%w: not supported on %s/%s", hal.ErrNoDriver, runtime.GOOS, runtime.GOARCH)
}
