//go:build !(cgo && linux)

package nvml

// openLibrary fails: go-nvml needs cgo.
func openLibrary() (Source, error) { return nil, errNoLibrary }
