// Package home remembers where weights lie best on a machine whose GPU shares its memory with the host: in memory of the device's own, or in memory that
// the host sees too, of which it is not known of every machine whether the device keeps it in L2. spark-info --check measures it once; the
// answer is a file in the cache, for one device and one build of its driver.
package home

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

// Home is where weights lie best, and the times that say so: of a kernel that reads so many bytes again and again.
type Home struct {
	Format int    `json:"format"`
	Device string `json:"device"`
	Driver string `json:"driver"` // what tells its builds apart
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

// Decide says where weights lie best: where the host sees them if that is faster by 5 % in one case, and not slower by 2 % in the other.
func (h *Home) Decide() {
	a, b := h.Cached.HostUS/h.Cached.DeviceUS, h.Memory.HostUS/h.Memory.DeviceUS
	h.Host = min(a, b) <= better && max(a, b) <= worse
}

func (h *Home) String() string {
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

// Read returns what was kept of a device and a build of its driver; false if nothing was, or what is there is damaged: then it is measured again.
func Read(dir, device, driver string) (Home, bool) {
	var h Home
	raw, err := os.ReadFile(path(dir, device, driver))
	if err != nil || json.Unmarshal(raw, &h) != nil || h.Format != format || h.Device != device || h.Driver != driver {
		return Home{}, false
	}
	return h, true
}

// Write keeps it.
func (h Home) Write(dir string) error {
	h.Format = format
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path(dir, h.Device, h.Driver), h)
}
