package camera

import (
	"embed"
	"io/fs"
)

//go:embed match.go video.go warp.go
var source embed.FS

// Source returns the code that decodes and warps pictures, for keys of caches of what it made.
func Source() fs.FS { return source }
