// Package fakecuda builds the stand-in for libcuda.so.1 (hal/cuda/testdata/fakecuda.c) for tests and controls it.
package fakecuda

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/dlopen"
)

// Driver is a built library. A process that opens it under two paths gets two drivers.
type Driver struct {
	Path    string
	symbols map[string]uintptr
}

// Build builds the library for one test, and skips the test where gcc is missing.
func Build(t *testing.T) *Driver {
	t.Helper()
	d, err := New(t.TempDir())
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("gcc is missing: the fake driver cannot be built")
	}
	if errors.Is(err, dlopen.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// New builds the library in a directory. Without gcc the error is exec.ErrNotFound.
func New(dir string) (*Driver, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return nil, err
	}
	_, here, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(here), "..", "..", "..", "hal", "cuda", "testdata", "fakecuda.c")
	d := &Driver{Path: filepath.Join(dir, "libcuda-fake.so"), symbols: map[string]uintptr{}}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-w", "-o", d.Path, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	lib, err := dlopen.Open(d.Path)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"fake_log", "fake_reset", "fake_fail", "fake_balance", "fake_set", "fake_contexts"} {
		if d.symbols[name], err = lib.Symbol(name); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Reset forgets everything; unified sets whether the device shares its memory with the host.
func (d *Driver) Reset(unified bool) {
	flag := uintptr(0)
	if unified {
		flag = 1
	}
	dlopen.Call(d.symbols["fake_reset"], flag)
}

// Set changes a property of the device until the next reset: devices, version, host coherent, managed coherent, managed offered,
// busy, unknown attribute, no programmatic launches, edges wrong, stale reads, lossy query, launch microseconds (the C file says what they are).
func (d *Driver) Set(name string, value int) {
	if d.call("fake_set", name, value) != 0 {
		panic("the fake driver has no " + name)
	}
}

// Fail makes an entry point fail with a code after it has succeeded a number of times.
func (d *Driver) Fail(call string, after, code int) {
	d.call("fake_fail", call, after, code)
}

// call calls a function whose first argument is a string.
func (d *Driver) call(function, text string, numbers ...int) int32 {
	s := append([]byte(text), 0)
	var pin runtime.Pinner // on the heap, where the string does not move during the call
	pin.Pin(&s[0])
	defer pin.Unpin()
	args := []uintptr{uintptr(unsafe.Pointer(&s[0]))}
	for _, n := range numbers {
		args = append(args, uintptr(n))
	}
	return int32(dlopen.Call(d.symbols[function], args...))
}

// Balance counts the objects created and not freed, Contexts the contexts that are retained, Held both.
func (d *Driver) Balance() int  { return d.count("fake_balance") }
func (d *Driver) Contexts() int { return d.count("fake_contexts") }
func (d *Driver) Held() int     { return d.Balance() + d.Contexts() }

func (d *Driver) count(function string) int {
	return int(int32(dlopen.Call(d.symbols[function])))
}

// Log lists what the driver was told to do since the last reset.
func (d *Driver) Log() []string {
	r := dlopen.Call(d.symbols["fake_log"])
	text := *(**byte)(unsafe.Pointer(&r))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 {
		n++
	}
	return strings.Split(strings.TrimSpace(string(unsafe.Slice(text, n))), "\n")
}
