//go:build !(linux && (amd64 || arm64))

package ranks

import (
	"context"
	"fmt"
)

// Libraries are those that can be opened: none here.
func Libraries(func(string) string) map[string]string { return nil }

// joinMPI is for Linux on amd64 and arm64.
func joinMPI(_ context.Context, p place, _ func(string) string) (Group, error) {
	return nil, fmt.Errorf("%s started this process as rank %d of %d: set MASTER_ADDR to the first rank's machine: MPI is not used on this system", p.launcher, p.rank, p.size)
}
