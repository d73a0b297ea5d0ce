//go:build !(cgo && linux)

package nvml

import "errors"

// openLibrary fails: go-nvml needs cgo.
func openLibrary() (Source, error) {
	return nil, errors.New("NVML: this program was built without cgo")
}
