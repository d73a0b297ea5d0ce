//go:build !linux || (!amd64 && !arm64) || nodriver

package dlopen

// Supported reports whether this program can open libraries.
const Supported = false

// Open returns ErrUnsupported.
func Open(string) (Library, error) { return 0, ErrUnsupported }

// OpenGlobal returns ErrUnsupported.
func OpenGlobal(string) (Library, error) { return 0, ErrUnsupported }

// Symbol returns ErrUnsupported.
func (l Library) Symbol(string) (uintptr, error) { return 0, ErrUnsupported }

// Call panics: there is no library whose function it could call.
func Call(uintptr, ...uintptr) uintptr { panic(reason) }
