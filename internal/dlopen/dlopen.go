// Package dlopen opens shared libraries at run time and calls their functions, without cgo (dlopen(3)).
//
//	purego.go       Linux on amd64 and arm64: the program is linked with glibc
//	unsupported.go  elsewhere, and with -tags nodriver: a static program
package dlopen

import "errors"

// ErrUnsupported means that this program opens no shared libraries, whatever is installed.
var ErrUnsupported = errors.New(reason)

// Library is an open library. It stays open until the process ends.
type Library uintptr
