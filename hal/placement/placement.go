// Package placement remembers which memory serves weights fastest on a machine whose GPU shares memory with the host:
// device memory, or memory that the host sees too, which some machines don't cache in L2. spark-info --check measures
// it once per device and driver build and caches the answer in a file.
package placement

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
)

const format = 1

// Placement is where weights lie best, and the times that say so: of a kernel that reads so many bytes again and again.
type Placement struct {
	Format int    `json:"format"`
	Device string `json:"device"`
	Driver string `json:"driver"` // identifies its build
	Cached Times  `json:"cached"` // bytes that L2 holds
	Memory Times  `json:"memory"` // bytes that it does not
	Host   bool   `json:"host"`   // in memory that the host sees
}

// Times are medians, in µs.
type Times struct {
	Bytes    int     `json:"bytes"`
	DeviceUS float64 `json:"device_us"`
	HostUS   float64 `json:"host_us"`
}

// Clear differences only count: the device's own memory is what others use.
const (
	worse  = 1.02
	better = 0.95
)

// Decide says where weights lie best: where the host sees them if that is faster by 5 % in one case, and not slower
// by 2 % in the other.
func (h *Placement) Decide() {
	a, b := h.Cached.HostUS/h.Cached.DeviceUS, h.Memory.HostUS/h.Memory.DeviceUS
	h.Host = min(a, b) <= better && max(a, b) <= worse
}

func (h *Placement) String() string {
	where := "memory of the device's own"
	if h.Host {
		where = "memory that the host sees"
	}
	return fmt.Sprintf("weights are put into %s (the host's takes %.2f times as long where L2 holds them, %.2f where it does not)", where,
		h.Cached.HostUS/h.Cached.DeviceUS, h.Memory.HostUS/h.Memory.DeviceUS)
}

func path(dir, device, driver string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s", format, device, driver))
	return filepath.Join(dir, "home-"+hex.EncodeToString(sum[:8])+".json")
}

// Load returns what was stored for a device and its driver's build. It returns false if nothing was, or it is
// damaged: then it is measured again.
func Load(dir, device, driver string) (Placement, bool) {
	var h Placement
	raw, err := os.ReadFile(path(dir, device, driver))
	if err != nil || json.Unmarshal(raw, &h) != nil || h.Format != format || h.Device != device || h.Driver != driver {
		return Placement{}, false
	}
	return h, true
}

// Write keeps it.
func (h Placement) Write(dir string) error {
	h.Format = format
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path(dir, h.Device, h.Driver), h)
}
