//go:build !linux || (!amd64 && !arm64)

package nvml

// openLibrary fails: the library is opened on Linux for amd64 and arm64 only.
func openLibrary() (Source, error) { return nil, errNoLibrary }
