package machine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// root is a machine's files: pairs of path and content.
func root(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// firmwareOf is a DMI with a vendor and a product.
func firmwareOf(vendor, product string, more ...string) fstest.MapFS {
	return root(append([]string{"sys/class/dmi/id/sys_vendor", vendor + "\n", "sys/class/dmi/id/product_name", product + "\n"}, more...)...)
}

var gb10 = chip{"NVIDIA GB10", 12, 1}

func TestMachinesAreRecognised(t *testing.T) {
	for _, c := range []struct {
		name            string
		root            fstest.MapFS
		chips           []chip
		kind            Kind
		vendor, product string
	}{
		{"DGX Spark", firmwareOf("NVIDIA", "NVIDIA_DGX_Spark"), []chip{gb10}, DGXSpark, "NVIDIA", "DGX Spark"},
		{"DGX Spark by its family", firmwareOf("NVIDIA Corporation", "P4242", "sys/class/dmi/id/product_family", "DGX Spark"), []chip{gb10}, DGXSpark, "NVIDIA", "DGX Spark"},
		{"DGX Spark by its device tree", root("proc/device-tree/model", "NVIDIA DGX Spark\x00"), []chip{gb10}, DGXSpark, "NVIDIA", "DGX Spark"},
		{"DGX Spark whose driver is missing", firmwareOf("NVIDIA", "NVIDIA_DGX_Spark"), nil, DGXSpark, "NVIDIA", "DGX Spark"},
		{"Dell", firmwareOf("Dell Inc.", "Dell Pro Max with GB10 FCM1253"), []chip{gb10}, GB10, "Dell", "Dell Pro Max with GB10"},
		{"Acer", firmwareOf("Acer", "Veriton GN100"), []chip{gb10}, GB10, "Acer", "Veriton GN100"},
		{"Lenovo", firmwareOf("LENOVO", "30KL0000US", "sys/class/dmi/id/product_version", "ThinkStation PGX"), []chip{gb10}, GB10, "Lenovo", "ThinkStation PGX"},
		{"ASUS", firmwareOf("ASUSTeK COMPUTER INC.", "GX10"), []chip{gb10}, GB10, "ASUS", "Ascent GX10"},
		{"HP", firmwareOf("HP", "HP ZGX Nano G1n AI Station"), []chip{gb10}, GB10, "HP", "ZGX Nano"},
		{"Gigabyte", firmwareOf("GIGABYTE", "AI TOP ATOM"), []chip{gb10}, GB10, "Gigabyte", "AI TOP ATOM"},
		{"Gigabyte in its older spelling", firmwareOf("Giga-Byte Technology Co., Ltd.", "AI-TOP-ATOM"), nil, GB10, "Gigabyte", "AI TOP ATOM"},
		{"MSI", firmwareOf("Micro-Star International Co., Ltd.", "MS-C931"), []chip{gb10}, GB10, "MSI", "EdgeXpert"},
		{"a vendor nobody knows", firmwareOf("Contoso", "Box 1"), []chip{gb10}, GB10, "Contoso", "Box 1"},
		{"a container without firmware", root(), []chip{gb10}, GB10, "", ""},
		{"management layer without capability", root(), []chip{{"NVIDIA GB10", 0, 0}}, GB10, "", ""},
		{"a second GPU", firmwareOf("NVIDIA", "NVIDIA_DGX_Spark"), []chip{{"NVIDIA RTX PRO 6000", 12, 0}, gb10}, DGXSpark, "NVIDIA", "DGX Spark"},

		{"a Dell Pro Max with another GPU", firmwareOf("Dell Inc.", "Dell Pro Max Tower T2"), []chip{{"NVIDIA RTX PRO 6000 Blackwell", 12, 0}}, Other, "Dell Inc.", "Dell Pro Max Tower T2"},
		{"Dell with GB300", firmwareOf("Dell Inc.", "Dell Pro Max with GB300"), []chip{{"NVIDIA GB300", 10, 3}}, Other, "Dell Inc.", "Dell Pro Max with GB300"},
		{"DGX Station", firmwareOf("NVIDIA", "DGX Station GB300"), []chip{{"NVIDIA GB300", 10, 3}}, Other, "NVIDIA", "DGX Station GB300"},
		{"DGX-2", firmwareOf("NVIDIA", "NVIDIA DGX-2"), []chip{{"Tesla V100-SXM3-32GB", 7, 0}}, Other, "NVIDIA", "NVIDIA DGX-2"},
		{"Jetson Thor", root("proc/device-tree/model", "NVIDIA Jetson AGX Thor Developer Kit\x00"), []chip{{"NVIDIA Thor", 11, 0}}, Other, "", "NVIDIA Jetson AGX Thor Developer Kit"},
		{"an ASUS laptop", firmwareOf("ASUSTeK COMPUTER INC.", "ROG Zephyrus GX501VIK"), nil, Other, "ASUSTeK COMPUTER INC.", "ROG Zephyrus GX501VIK"},
		{"HP's larger sister", firmwareOf("HP", "HP ZGX Fury AI Station"), nil, Other, "HP", "HP ZGX Fury AI Station"},
		{"Lenovo's other ThinkStation", firmwareOf("LENOVO", "ThinkStation PX"), nil, Other, "LENOVO", "ThinkStation PX"},
		{"a Gigabyte board of the same line", firmwareOf("Gigabyte Technology Co., Ltd.", "TRX50 AI TOP"), nil, Other, "Gigabyte Technology Co., Ltd.", "TRX50 AI TOP"},
		{"the name under another vendor", firmwareOf("QEMU", "NVIDIA_DGX_Spark"), nil, Other, "QEMU", "NVIDIA_DGX_Spark"},
		{"firmware copied to a machine with another GPU", firmwareOf("NVIDIA", "NVIDIA_DGX_Spark"), []chip{{"NVIDIA H200", 9, 0}}, Other, "NVIDIA", "DGX Spark"},
		{"a chip whose name begins alike", root(), []chip{{"NVIDIA GB100", 10, 0}, {"NVIDIA GB10x", 12, 1}}, Other, "", ""},
		{"the name with another capability", root(), []chip{{"NVIDIA GB10", 10, 0}}, Other, "", ""},
		{"another chip of the capability", root(), []chip{{"NVIDIA N1X", 12, 1}}, Other, "", ""},
		{"nothing at all", root(), nil, Other, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := identify(c.root, c.chips)
			require.Equal(t, c.kind, id.Kind, "%+v", id)
			require.Equal(t, c.vendor, id.Vendor)
			require.Equal(t, c.product, id.Product)
			if c.kind != Other {
				require.NotEmpty(t, id.Evidence)
			}
		})
	}
}

// stub is a management layer.
type stub struct {
	snapshot nvml.Snapshot
	err      error
}

func (s stub) Name() string                                { return "nvidia-smi" }
func (s stub) Close() error                                { return nil }
func (s stub) Read(context.Context) (nvml.Snapshot, error) { return s.snapshot, s.err }

func prober(files fstest.MapFS, sys *cuda.System, s stub) Prober {
	return Prober{Root: files, Driver: func() (*cuda.System, error) {
		if sys == nil {
			return nil, hal.ErrNoDriver
		}
		return sys, nil
	}, Management: func() (nvml.Source, error) { return s, nil }}
}

const meminfoText = "MemTotal:       125000000 kB\nMemFree:  1 kB\nMemAvailable:   100000000 kB\nHugePages_Total: 0\n"

func TestSparksMemoryIsThatOfTheMachine(t *testing.T) {
	m := prober(firmwareOf("NVIDIA", "NVIDIA_DGX_Spark", "proc/meminfo", meminfoText),
		&cuda.System{CUDA: "13.0", GPUs: []cuda.GPU{{Name: "NVIDIA GB10", Bus: "0000000f:01:00.0", Major: 12, Minor: 1, SMs: 48, Memory: 9, Integrated: true}}},
		stub{snapshot: nvml.Snapshot{Driver: "580.95.05", GPUs: []nvml.GPU{{Name: "NVIDIA GB10", Bus: "0000000f:01:00.0", Major: 12, Minor: 1, PowerWatts: nvml.Known(41)}}}}).Survey(context.Background())
	require.Equal(t, DGXSpark, m.Kind)
	require.Equal(t, int64(125000000<<10), m.MemoryTotal)
	g := m.BestGPU()
	require.Equal(t, "sm_121", g.Target)
	require.Equal(t, 48, g.SMs)
	require.True(t, g.Unified)
	require.Equal(t, nvml.Known(125000000<<10), g.MemoryTotal)
	require.Equal(t, nvml.Known(25000000<<10), g.MemoryUsed)
	require.Equal(t, "/proc/meminfo", g.MemorySource)
	require.Equal(t, nvml.Known(41), g.PowerWatts)
	require.Equal(t, "nvfp4", g.Recommended)
	require.Equal(t, []string{"580.95.05", "13.0", "nvidia-smi"}, []string{m.Driver, m.CUDA, m.Management})
	require.Empty(t, m.Missing)
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"power_watts":41`)
}

func TestGPUsArePairedByTheirBus(t *testing.T) {
	m := prober(root("proc/meminfo", meminfoText),
		&cuda.System{GPUs: []cuda.GPU{{Name: "NVIDIA H200", Bus: "00000000:3b:00.0", Major: 9, SMs: 132, Memory: 150 << 30}, {Ordinal: 1, Name: "NVIDIA T4", Bus: "00000000:19:00.0", Major: 7, Minor: 5, SMs: 40, Memory: 16 << 30}}},
		stub{snapshot: nvml.Snapshot{GPUs: []nvml.GPU{{Index: 0, Name: "NVIDIA T4", Bus: "00000000:19:00.0"}, {Index: 1, Name: "NVIDIA H200", Bus: "00000000:3b:00.0", MemoryTotal: nvml.Known(7)}, {Index: 2, Name: "NVIDIA GTX", Bus: "00000000:99:00.0"}}}}).Survey(context.Background())
	require.Len(t, m.GPUs, 3)
	require.Equal(t, []int{0, 1, 1, 0}, []int{m.GPUs[0].Ordinal, m.GPUs[0].Index, m.GPUs[1].Ordinal, m.GPUs[1].Index})
	require.Equal(t, nvml.Known(7), m.GPUs[0].MemoryTotal)
	require.Equal(t, "nvidia-smi", m.GPUs[0].MemorySource)
	require.Equal(t, nvml.Known(16<<30), m.GPUs[1].MemoryTotal, "the driver's figure where the management layer has none")
	require.Equal(t, -1, m.GPUs[2].Ordinal, "a GPU that the driver hides (CUDA_VISIBLE_DEVICES)")
	require.Equal(t, "NVIDIA H200", m.BestGPU().Name)
	require.Equal(t, []string{"fp8", "fp16"}, []string{m.GPUs[0].Recommended, m.GPUs[1].Recommended})
}

func TestMachineWithoutAnything(t *testing.T) {
	m := prober(root(), nil, stub{err: errors.New("hangs")}).Survey(context.Background())
	require.Nil(t, m.BestGPU())
	require.Empty(t, m.GPUs)
	require.Len(t, m.Missing, 2)
	require.Equal(t, Other, m.Kind)
	require.Zero(t, m.MemoryTotal)
}

func TestRecommendedPrecision(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		want         string
	}{{0, 0, "fp32"}, {6, 1, "fp32"}, {7, 0, "fp16"}, {7, 5, "fp16"}, {8, 0, "bf16"}, {8, 9, "bf16"}, {9, 0, "fp8"}, {10, 0, "nvfp4"}, {12, 1, "nvfp4"}} {
		all := precision.On(c.major, c.minor)
		require.Equal(t, c.want, all[len(all)-1], "%d.%d", c.major, c.minor)
	}
}

func TestOddMeminfo(t *testing.T) {
	for _, text := range []string{"", "MemTotal: many kB\n", "MemTotal: -5 kB\n", "garbage\x00"} {
		total, available := meminfo(root("proc/meminfo", text))
		require.Zero(t, total)
		require.Zero(t, available)
	}
}

func TestTheSurveyIsMadeOnce(t *testing.T) {
	require.Same(t, Current(), Current())
}
