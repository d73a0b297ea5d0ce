package machine

// precisions are what tensor cores have, by the first compute capability that has it (×10).
var precisions = []struct {
	since int
	name  string
}{{0, "fp32"}, {70, "fp16"}, {80, "bf16"}, {90, "fp8"}, {100, "nvfp4"}}

// Precisions lists what a compute capability has, the recommended one last; fp32 alone where it is unknown.
func Precisions(major, minor int) []string {
	var out []string
	for _, p := range precisions {
		if 10*major+minor >= p.since {
			out = append(out, p.name)
		}
	}
	return out
}
