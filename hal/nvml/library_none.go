//go:build !cgo || !linux || nonvml

package nvml

// openLibrary fails: go-nvml needs cgo.
func openLibrary() (Source, error) { return nil, errNoLibrary }
