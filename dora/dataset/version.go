package dataset

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

//go:embed cameras.go contract.go drive.go driver.go pictures.go poses.go rotation.go segment.go timeline.go
var source embed.FS

// codeVersion is a digest of the code that makes what the cache keeps of a segment, and of the cameras and warps that
// it takes from modeld.
var codeVersion = sync.OnceValue(func() string {
	h := sha256.New()
	for _, files := range []fs.FS{source, route.Source(), camera.Source()} {
		names, err := fs.Glob(files, "*.go")
		if err != nil {
			panic(err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(files, name)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(h, "%s %d\n", name, len(data))
			h.Write(data)
		}
	}
	for _, device := range []string{"neo", "tici", "tizi", "mici", "unknown"} {
		for _, sensor := range []string{"unknown", "ar0231", "ox03c10", "os04c10"} {
			c, err := modeld.CamerasOf(device, sensor)
			k := modeld.Calibration{RPY: [3]float64{0.01, 0.02, 0.03}, Road: c.Road, WideCamera: c.Wide}
			road, wide, wrong := k.Warps(512)
			fmt.Fprintln(h, c, err, road, wide, wrong)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
})
