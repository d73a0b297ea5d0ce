package machine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spark is a machine with the two devices of one port.
func spark() (fstest.MapFS, map[string]string) {
	sys := fstest.MapFS{}
	file := func(name, text string) { sys[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	for device, net := range map[string]string{"rocep1s0f1": "enp1s0f1np1", "roceP2p1s0f1": "enP2p1s0f1np1"} {
		dir := "class/infiniband/" + device
		file(dir+"/ports/1/state", "4: ACTIVE")
		file(dir+"/ports/1/rate", "100 Gb/sec (4X EDR)")
		file(dir+"/device/net/"+net+"/mtu", "9000")
		for name, text := range map[string]string{"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "4", "max_link_width": "4"} {
			file(dir+"/device/"+name, text)
		}
		file("class/net/"+net+"/operstate", "up")
		file("class/net/"+net+"/mtu", "9000")
		file("class/net/"+net+"/speed", "100000")
	}
	file("class/net/wlan0/operstate", "down")
	file("class/net/wlan0/mtu", "1500")
	file("class/net/wlan0/speed", "-1")
	return sys, map[string]string{}
}

func read(sys fstest.MapFS, env map[string]string, bare string) Fabric {
	return FabricReader{Sys: sys, Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Addresses: func(name string) []string {
			if name == bare {
				return nil
			}
			return []string{"192.168.100.1/24"}
		},
		Libraries: func() map[string]string { return map[string]string{"MPI": "Open MPI 4.1.4"} }}.Read()
}

func TestAPortThatIsSetUpWell(t *testing.T) {
	sys, env := spark()
	f := read(sys, env, "")
	require.Len(t, f.Devices, 2)
	assert.Equal(t, RDMADevice{"rocep1s0f1", []string{"enp1s0f1np1"}, "ACTIVE", "100 Gb/sec (4X EDR)", PCIeLink{"32.0 GT/s PCIe", "32.0 GT/s PCIe", 4, 4}}, f.Devices[1])
	assert.Equal(t, NetInterface{"enp1s0f1np1", true, 9000, 100000, []string{"192.168.100.1/24"}}, f.Interfaces[1])
	assert.Zero(t, f.Interfaces[2].Mbit)
	assert.Empty(t, f.Findings)
}

// TestFabric_FindsKnownProblems: each by itself, with its remedy.
func TestFabric_FindsKnownProblems(t *testing.T) {
	for want, c := range map[string]struct {
		change func(sys fstest.MapFS, env map[string]string)
		bare   string
		remedy string
	}{
		"enp1s0f1np1 has an MTU of 1500": {func(sys fstest.MapFS, _ map[string]string) { sys["class/net/enp1s0f1np1/mtu"].Data = []byte("1500\n") }, "", "mtu: 9000"},
		"enp1s0f1np1 has no address":     {func(fstest.MapFS, map[string]string) {}, "enp1s0f1np1", "192.168.100.1/24"},
		"1 of 2 devices is up: half of a port's bandwidth": {func(sys fstest.MapFS, _ map[string]string) {
			sys["class/infiniband/roceP2p1s0f1/ports/1/state"].Data = []byte("1: DOWN\n")
		}, "", "netplan"},
		"roceP2p1s0f1 runs on 2 of 4 PCIe lanes": {func(sys fstest.MapFS, _ map[string]string) {
			sys["class/infiniband/roceP2p1s0f1/device/current_link_width"].Data = []byte("2\n")
		}, "", "BIOS"},
		"rocep1s0f1 runs at 16.0 GT/s PCIe instead of 32.0 GT/s PCIe": {func(sys fstest.MapFS, _ map[string]string) {
			sys["class/infiniband/rocep1s0f1/device/current_link_speed"].Data = []byte("16.0 GT/s PCIe\n")
		}, "", "firmware"},
		`NCCL_IB_GID_INDEX is set to ""`: {func(_ fstest.MapFS, env map[string]string) { env["NCCL_IB_GID_INDEX"] = "" }, "", "unset"},
		"NCCL_SOCKET_IFNAME only picks the way on which ranks meet, not that of the data": {func(_ fstest.MapFS, env map[string]string) { env["NCCL_SOCKET_IFNAME"] = "enp1s0f1np1" }, "", "NCCL_IB_HCA"},
		"OMPI_MCA_btl_tcp_if_include names eth9, which is none of this machine's":         {func(_ fstest.MapFS, env map[string]string) { env["OMPI_MCA_btl_tcp_if_include"] = "eth9" }, "", "up"},
		"UCX_NET_DEVICES names wlan0, which is down":                                      {func(_ fstest.MapFS, env map[string]string) { env["UCX_NET_DEVICES"] = "wlan0" }, "", "up"},
		"no device that does RDMA is up": {func(sys fstest.MapFS, _ map[string]string) {
			for _, d := range []string{"rocep1s0f1", "roceP2p1s0f1"} {
				sys["class/infiniband/"+d+"/ports/1/state"].Data = []byte("1: DOWN\n")
			}
		}, "", "QSFP"},
		"no device does RDMA": {func(sys fstest.MapFS, _ map[string]string) {
			for name := range sys {
				if len(name) > 16 && name[:16] == "class/infiniband" {
					delete(sys, name)
				}
			}
		}, "", "docs/guide/spark.md"},
	} {
		sys, env := spark()
		c.change(sys, env)
		f := read(sys, env, c.bare)
		require.Len(t, f.Findings, 1, want)
		assert.Equal(t, want, f.Findings[0].What)
		assert.Contains(t, f.Findings[0].Remedy, c.remedy)
	}
}
