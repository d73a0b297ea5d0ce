package machine

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Fabric describes what connects this machine to others for training (RDMA devices, interfaces, libraries, settings)
// and the known problems with it on two DGX Sparks.
type Fabric struct {
	Devices    []RDMADevice      `json:"devices"`
	Interfaces []NetInterface    `json:"interfaces"`
	Libraries  map[string]string `json:"libraries"` // by name: version, or why there is none
	Settings   map[string]string `json:"settings"`  // of the environment
	Findings   []FabricFinding   `json:"findings"`
}

// RDMADevice does RDMA. Each port of a DGX Spark's ConnectX-7 is two of them, each on four PCIe lanes.
type RDMADevice struct {
	Name       string   `json:"name"`
	Interfaces []string `json:"interfaces"`
	State      string   `json:"state"` // ACTIVE, DOWN
	Rate       string   `json:"rate"`
	Link       PCIeLink `json:"pcie"`
}

// PCIeLink is a device's way to the processor.
type PCIeLink struct {
	Speed    string `json:"speed,omitempty"` // 32.0 GT/s PCIe
	MaxSpeed string `json:"max_speed,omitempty"`
	Width    int    `json:"width,omitempty"`
	MaxWidth int    `json:"max_width,omitempty"`
}

// NetInterface is one of the network.
type NetInterface struct {
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	MTU       int      `json:"mtu"`
	Mbit      int      `json:"mbit,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// FabricFinding is something that is known to go wrong, and its remedy.
type FabricFinding struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// FabricReader is where the facts come from.
type FabricReader struct {
	Sys       fs.FS // of /sys
	Getenv    func(name string) (string, bool)
	Addresses func(name string) []string // of an interface
	Libraries func() map[string]string
}

// variables are settings of NCCL, UCX and Open MPI that decide which way is taken.
var variables = []string{"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_MERGE_NICS", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include",
	"MASTER_ADDR", "MASTER_PORT"}

// jumbo is the size of packets that the link needs on both ends.
const jumbo = 9000

// Read describes the machine.
func (m FabricReader) Read() Fabric {
	f := Fabric{Libraries: m.Libraries(), Settings: map[string]string{}}
	for _, name := range m.list("class/net") {
		dir := "class/net/" + name
		f.Interfaces = append(f.Interfaces, NetInterface{Name: name, Up: m.text(dir, "operstate") == "up", MTU: m.number(dir, "mtu"), Mbit: max(0, m.number(dir, "speed")), Addresses: m.Addresses(name)})
	}
	for _, name := range m.list("class/infiniband") {
		dir := "class/infiniband/" + name
		_, state, _ := strings.Cut(m.text(dir, "ports/1/state"), ": ")
		f.Devices = append(f.Devices, RDMADevice{Name: name, Interfaces: m.list(dir + "/device/net"), State: cmp.Or(state, "unknown"), Rate: m.text(dir, "ports/1/rate"),
			Link: PCIeLink{m.text(dir, "device/current_link_speed"), m.text(dir, "device/max_link_speed"), m.number(dir, "device/current_link_width"), m.number(dir, "device/max_link_width")}})
	}
	for _, name := range variables {
		if value, set := m.Getenv(name); set {
			f.Settings[name] = value
		}
	}
	f.judge()
	return f
}

func (m FabricReader) list(dir string) (names []string) {
	entries, err := fs.ReadDir(m.Sys, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (m FabricReader) text(dir, name string) string {
	data, err := fs.ReadFile(m.Sys, path.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (m FabricReader) number(dir, name string) int {
	n, _ := strconv.Atoi(m.text(dir, name))
	return n
}

func (f *Fabric) say(remedy, what string, args ...any) {
	f.Findings = append(f.Findings, FabricFinding{fmt.Sprintf(what, args...), remedy})
}

// judge looks for what is known to go wrong (DGX Spark playbooks and issues, 2025-11 to 2026-08).
func (f *Fabric) judge() {
	if len(f.Devices) == 0 {
		f.say("for two DGX Sparks, see docs/guide/spark.md; over other networks ranks exchange gradients by TCP, which a few megabytes allow", "no device does RDMA")
	}
	up := 0
	for _, d := range f.Devices {
		if d.State != "ACTIVE" {
			continue
		}
		up++
		f.link(d)
		for _, name := range d.Interfaces {
			f.net(name)
		}
	}
	switch {
	case len(f.Devices) > 0 && up == 0:
		f.say("connect the same port of both machines with a QSFP cable, and check with ibdev2netdev", "no device that does RDMA is up")
	case up%2 == 1 && len(f.Devices) > 1:
		f.say("each port is two devices: bring both up and give each an address in /etc/netplan (nmcli's changes vanish)", "%d of %d devices is up: half of a port's bandwidth", up, len(f.Devices))
	}
	f.environment(up)
}

// link compares a device's way to the processor with what it could be.
func (f *Fabric) link(d RDMADevice) {
	l := d.Link
	if l.Width < l.MaxWidth {
		f.say("update the BIOS (before 2026-04 it ran the second half at x2), then power off fully", "%s runs on %d of %d PCIe lanes", d.Name, l.Width, l.MaxWidth)
	}
	if l.Speed != l.MaxSpeed {
		f.say("update BIOS and firmware, then power off fully", "%s runs at %s instead of %s", d.Name, l.Speed, l.MaxSpeed)
	}
}

// net checks the interface of a device that is up.
func (f *Fabric) net(name string) {
	i := slices.IndexFunc(f.Interfaces, func(n NetInterface) bool { return n.Name == name })
	if i < 0 {
		return
	}
	n := f.Interfaces[i]
	if n.MTU < jumbo {
		f.say(fmt.Sprintf("set mtu: %d for it in /etc/netplan on both machines: different sizes end in IBV_WC_RETRY_EXC_ERR, and firmware updates reset one end", jumbo), "%s has an MTU of %d", name, n.MTU)
	}
	if len(n.Addresses) == 0 {
		f.say("give it one in /etc/netplan, such as 192.168.100.1/24, and the other machine 192.168.100.2/24", "%s has no address", name)
	}
}

// environment checks settings against what there is.
func (f *Fabric) environment(up int) {
	if value, set := f.Settings["NCCL_IB_GID_INDEX"]; set {
		f.say("unset it: the index drifts (3, then 4), and a wrong one hangs silently; an empty value means 0", "NCCL_IB_GID_INDEX is set to %q", value)
	}
	if f.Settings["NCCL_SOCKET_IFNAME"] != "" && f.Settings["NCCL_IB_HCA"] == "" && up > 1 {
		f.say("set NCCL_IB_HCA to both devices of the port, and NCCL_IB_MERGE_NICS=1", "NCCL_SOCKET_IFNAME only picks the way on which ranks meet, not that of the data")
	}
	for _, name := range []string{"NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include"} {
		for _, one := range strings.Split(f.Settings[name], ",") {
			one = strings.TrimLeft(one, "=^")
			known := slices.IndexFunc(f.Interfaces, func(n NetInterface) bool { return one != "" && strings.HasPrefix(n.Name, one) })
			device := slices.ContainsFunc(f.Devices, func(d RDMADevice) bool { return one != "" && strings.HasPrefix(one, d.Name) })
			switch {
			case one == "" || device || strings.Contains(one, "/"):
			case known < 0:
				f.say("name an interface of this machine that is up", "%s names %s, which is none of this machine's", name, one)
			case !f.Interfaces[known].Up:
				f.say("name one that is up, or bring it up", "%s names %s, which is down", name, one)
			}
		}
	}
}
