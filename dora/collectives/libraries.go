package collectives

import "github.com/spark-compile/spark-compile/internal/dlopen"

// Libraries are the versions of MPI and NCCL that can be opened here, or why there is none; nil for a program that opens
// no libraries.
func Libraries(getenv func(string) string) map[string]string {
	if !dlopen.Supported {
		return nil
	}
	out := map[string]string{"MPI": "not found (libmpi.so.40 or libmpi.so.12)", "NCCL": "not found (libnccl.so.2)"}
	if l, err := openMPI(mpiPaths(getenv)); err == nil && l != nil {
		out["MPI"] = l.version()
	}
	if n, err := openNCCL(getenv(NCCLVariable)); err == nil {
		out["NCCL"] = n.version()
	}
	return out
}
