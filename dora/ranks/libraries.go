//go:build linux && (amd64 || arm64)

package ranks

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// NCCLVariable names the library of NCCL, where it is not found.
const NCCLVariable = "SPARK_NCCL"

// Libraries are the versions of MPI and NCCL that can be opened here, or why there is none.
func Libraries(getenv func(string) string) map[string]string {
	out := map[string]string{"MPI": "not found (libmpi.so.40 or libmpi.so.12)", "NCCL": "not found (libnccl.so.2)"}
	if l, err := openMPI(mpiPaths(getenv)); err == nil && l != nil {
		out["MPI"] = l.version()
	}
	path := getenv(NCCLVariable)
	if path == "" {
		path = "libnccl.so.2"
	}
	if handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
		if entry, err := purego.Dlsym(handle, "ncclGetVersion"); err == nil {
			l, version := &mpiLibrary{name: path, entries: map[string]uintptr{"ncclGetVersion": entry}}, int32(0)
			if l.call("ncclGetVersion", uintptr(unsafe.Pointer(&version))) == nil {
				out["NCCL"] = fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
			}
		}
	}
	return out
}
