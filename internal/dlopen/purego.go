//go:build linux && (amd64 || arm64) && !nodriver

package dlopen

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Supported reports whether this program can open libraries.
const Supported = true

const reason = ""

// Open opens a library by its path or soname; only Symbol finds what it exports.
func Open(path string) (Library, error) { return open(path, purego.RTLD_NOW|purego.RTLD_LOCAL) }

// OpenGlobal opens a library whose symbols later libraries may use.
func OpenGlobal(path string) (Library, error) { return open(path, purego.RTLD_NOW|purego.RTLD_GLOBAL) }

func open(path string, mode int) (Library, error) {
	runtime.LockOSThread() // dlerror reports the last error of the thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, mode)
	return Library(handle), err
}

// Symbol is the address of an exported function or variable.
func (l Library) Symbol(name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(uintptr(l), name)
}

// Call calls a C function of integers and pointers. What pointers point to must outlive the call and not move; a
// pointer converted in the call's argument list does both.
//
//go:uintptrescapes
func Call(function uintptr, args ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(function, args...)
	return result
}
