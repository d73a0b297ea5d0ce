package cuda

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// build identifies the driver's build: the CUDA version, which many builds share, and the library's name, size and
// time. The name ends in the release (libcuda.so.580.95.05).
func (d *driver) build(library string) (string, error) {
	var version int32
	if err := d.call("cuDriverGetVersion", addr(&version)); err != nil {
		return "", err
	}
	path := mapped(filepath.Base(cmp.Or(library, defaultLibrary)))
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Sprint(version), nil
	}
	return fmt.Sprintf("%d %s %d %d", version, filepath.Base(path), info.Size(), info.ModTime().UnixNano()), nil
}

// mapped is the path of the library of that name that this process has loaded, or "".
func mapped(name string) string {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return ""
	}
	defer maps.Close()
	stem, _, _ := strings.Cut(name, ".so")
	for s := bufio.NewScanner(maps); s.Scan(); {
		_, path, ok := strings.Cut(s.Text(), "/") // proc_pid_maps(5): the path is the last field
		if ok && strings.HasPrefix(filepath.Base(path), stem+".so") {
			return "/" + path
		}
	}
	return ""
}
