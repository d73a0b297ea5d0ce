//go:build cgo && linux

package main

/*
#cgo CFLAGS: -D_GNU_SOURCE
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#define SPARKCOMPILE_NO_PROTOTYPES
#include "sparkcompile.h"

extern char **environ;

static int here;

// library_path is the file that this library was loaded from.
static const char *library_path(void) {
	Dl_info info;
	return dladdr(&here, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/spark-compile/spark-compile/cmd/internal/library"
	"github.com/spark-compile/spark-compile/cmd/internal/spark"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// version is in C's memory for good: it is what sparkcompile_version returns.
var version = sync.OnceValue(func() *C.char { return C.CString(cli.Version()) })

//export sparkcompile_version
func sparkcompile_version() *C.char { return version() }

// build tells this library from others: a digest of its file. What another compiler made is not to be taken from the cache.
var build = sync.OnceValue(func() string {
	path := C.library_path()
	if path == nil {
		return ""
	}
	f, err := os.Open(C.GoString(path))
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil))
})

// environment makes Go's environment what the process's is by now: Go has read it when the library was loaded, and a program such as
// Python may have changed it.
func environment() {
	now := map[string]string{}
	for at := C.environ; at != nil && *at != nil; at = (**C.char)(unsafe.Add(unsafe.Pointer(at), unsafe.Sizeof(*at))) {
		if name, value, ok := strings.Cut(C.GoString(*at), "="); ok {
			now[name] = value
		}
	}
	for _, line := range os.Environ() {
		if name, _, ok := strings.Cut(line, "="); ok && name != "" {
			if _, still := now[name]; !still {
				os.Unsetenv(name)
			}
		}
	}
	for name, value := range now {
		if old, ok := os.LookupEnv(name); !ok || old != value {
			os.Setenv(name, value)
		}
	}
}

//export sparkcompile_main
func sparkcompile_main(argc C.int32_t, argv **C.char) C.int32_t {
	environment()
	args := texts(argv, C.size_t(max(argc, 0)))
	if len(args) == 0 {
		args = []string{"spark"}
	}
	code := cli.Bug
	err := library.Caught(func() error {
		code = spark.Main(args[0], args[1:], os.Stdout, os.Stderr)
		return nil
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
	}
	return C.int32_t(code)
}

// alive counts open models until the garbage collector has taken them, so it finds whatever still holds a closed one.
var alive atomic.Int64

func watch(o *open) {
	alive.Add(1)
	runtime.AddCleanup(o.model, func(int) { alive.Add(-1) }, 0)
}

//export sparkcompile_counts
func sparkcompile_counts(counts *C.int64_t) {
	for range 3 { // cleanups run after a collection, and what they free goes with the next
		runtime.GC()
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	out := (*[3]C.int64_t)(unsafe.Pointer(counts))
	out[0], out[1], out[2] = C.int64_t(alive.Load()), C.int64_t(runtime.NumGoroutine()), C.int64_t(heap[0].Value.Uint64())
}
