package main

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/target"
)

// bestTarget is the newest target that runs on a device's architecture, or the default one where the device takes any.
func bestTarget(sm string) string {
	names := target.Names()
	if sm == "" {
		return names[0]
	}
	capability := 0
	_, _ = fmt.Sscanf(sm, "sm_%d", &capability)
	for _, name := range names {
		if t, err := target.Lookup(name); err == nil && t.Capability <= capability {
			return name
		}
	}
	return names[len(names)-1]
}
