//go:build !(linux && (amd64 || arm64))

package collectives

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
)

// Libraries are those that can be opened: none here.
func Libraries(func(string) string) map[string]string { return nil }

// OnDevice is for Linux on amd64 and arm64: elsewhere the group stays as it is.
func OnDevice(_ context.Context, g Group, _ hal.Device, _ func(string) string) (Group, error) {
	return g, nil
}

// joinMPI is for Linux on amd64 and arm64.
func joinMPI(_ context.Context, p place, _ func(string) string) (Group, error) {
	return nil, fmt.Errorf("%s started this process as rank %d of %d: set MASTER_ADDR to the first rank's machine: MPI is not used on this system", p.launcher, p.rank, p.size)
}
