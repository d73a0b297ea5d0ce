//go:build !(linux && (amd64 || arm64))

package cuda

import (
	"fmt"
	"runtime"

	"github.com/spark-compile/spark-compile/hal"
)

// Open reports that there is no driver for this platform.
func Open(Options) (hal.Device, error) { return nil, unsupported() }

// List reports that there is no driver for this platform.
func List(Options) (*System, error) { return nil, unsupported() }

func unsupported() error {
	return fmt.Errorf("%w: not supported on %s/%s", hal.ErrNoDriver, runtime.GOOS, runtime.GOARCH)
}
