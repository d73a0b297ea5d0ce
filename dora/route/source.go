package route

import (
	"embed"
	"io/fs"
)

//go:embed decode.go event.go find.go kind.go layout.go messages.go model.go name.go reader.go stream.go
var source embed.FS

// Source returns the code that finds and reads logs, for keys of caches of what it read.
func Source() fs.FS { return source }
