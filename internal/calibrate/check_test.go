package calibrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// forge changes one thing of findings, or returns false where they have no such thing.
type forge func(s *Saved) bool

// layer changes the first layer that has what it wants.
func layer(has func(l *savedLayer) bool, change func(l *savedLayer)) forge {
	return func(s *Saved) bool {
		i := slices.IndexFunc(s.Fits[0].Layers, func(l savedLayer) bool { return has(&l) })
		if i >= 0 {
			change(&s.Fits[0].Layers[i])
		}
		return i >= 0
	}
}

// list makes a list shorter, longer and empty.
func list[T any](name string, of func(s *Saved) *[]T, into map[string]forge) {
	change := func(how func(x []T) []T) forge {
		return func(s *Saved) bool {
			x := of(s)
			if x == nil || len(*x) == 0 {
				return false
			}
			*x = how(*x)
			return true
		}
	}
	into[name+" shorter"] = change(func(x []T) []T { return x[:len(x)-1] })
	into[name+" longer"] = change(func(x []T) []T { return append(x, x[len(x)-1]) })
	into[name+" empty"] = change(func([]T) []T { return nil })
}

// firstLayer points at a part of the first layer in which that is not empty.
func firstLayer[T any](part func(l *savedLayer) *[]T) func(s *Saved) *[]T {
	return func(s *Saved) *[]T {
		for i := range s.Fits[0].Layers {
			if x := part(&s.Fits[0].Layers[i]); len(*x) > 0 {
				return x
			}
		}
		return nil
	}
}

// forgeries are findings of which one thing is not what any calibration finds.
func forgeries() map[string]forge {
	out := map[string]forge{}
	list("fits", func(s *Saved) *[]savedFit { return &s.Fits }, out)
	delete(out, "fits shorter")
	delete(out, "fits longer") // two fits of one assignment are right
	list("layers", func(s *Saved) *[]savedLayer { return &s.Fits[0].Layers }, out)
	list("codes", firstLayer(func(l *savedLayer) *[]byte { return &l.Codes }), out)
	list("blocks", firstLayer(func(l *savedLayer) *[]byte { return &l.Blocks }), out)
	list("scales of weights", firstLayer(func(l *savedLayer) *[]float64 { return &l.Scales }), out)
	list("bias", firstLayer(func(l *savedLayer) *[]float64 { return &l.Bias }), out)
	list("scales", func(s *Saved) *[]savedScale { return &s.Fits[0].Scales }, out)
	list("regions of means", func(s *Saved) *[]savedMeans { return &s.Means }, out)
	list("inputs of means", func(s *Saved) *[][]byte { return &s.Means[0].Inputs }, out)
	list("means", func(s *Saved) *[]byte { return &s.Means[0].Inputs[0] }, out)
	mean := func(x float64) forge {
		return func(s *Saved) bool {
			binary.LittleEndian.PutUint32(s.Means[0].Inputs[0], math.Float32bits(float32(x)))
			return true
		}
	}
	out["mean NaN"], out["mean infinite"] = mean(math.NaN()), mean(math.Inf(1))
	out["region of means unknown"] = func(s *Saved) bool { s.Means[0].Region = "nowhere"; return true }

	for name, x := range map[string]float64{"negative": -1, "zero": 0, "beyond f32": 1e300} {
		out["scale of weights "+name] = layer((*savedLayer).narrow, func(l *savedLayer) { l.Scales[0] = x })
		out["scale "+name] = func(s *Saved) bool { s.Fits[0].Scales[0].Scale = x; return true }
	}
	out["bias beyond f32"] = layer(func(l *savedLayer) bool { return l.Bias != nil },
		func(l *savedLayer) { l.Bias[0] = 1e300 })
	out["local negative"] = layer((*savedLayer).narrow, func(l *savedLayer) { l.Local = -1 })
	out["code NaN"] = layer(func(l *savedLayer) bool { return l.Format == "fp8" },
		func(l *savedLayer) { l.Codes[0] = 0x7f })
	out["scale of block NaN"] = layer(func(l *savedLayer) bool { return l.Blocks != nil },
		func(l *savedLayer) { l.Blocks[0] = 0x7f })
	out["scale of block negative"] = layer(func(l *savedLayer) bool { return l.Blocks != nil },
		func(l *savedLayer) { l.Blocks[0] = 0xb0 })
	out["site unknown"] = layer((*savedLayer).narrow, func(l *savedLayer) { l.Site = "nowhere" })
	for _, format := range []string{"", "int3", "fp6 weights", precision.Half.Name} {
		out["format "+format] = layer((*savedLayer).narrow, func(l *savedLayer) { l.Format = format })
	}
	out["format of a site for what is none"] = layer(func(l *savedLayer) bool { return !l.narrow() }, func(l *savedLayer) {
		l.Format = "fp8 weights"
	})
	for what, change := range map[string]func(x *savedScale){
		"value unknown":     func(x *savedScale) { x.Value = "nowhere" },
		"format unknown":    func(x *savedScale) { x.Format = "int3" },
		"format of weights": func(x *savedScale) { x.Format = "e3m2" },
		"in blocks":         func(x *savedScale) { x.Blocks = !x.Blocks },
		"in two terms":      func(x *savedScale) { x.Twice = !x.Twice },
		"error negative":    func(x *savedScale) { x.Error = -1 },
		"max negative":      func(x *savedScale) { x.Max = -1 },
		"max beyond f32":    func(x *savedScale) { x.Max = 1e300 },
		"headroom negative": func(x *savedScale) { x.Headroom = -1 },
	} {
		out["scale: "+what] = func(s *Saved) bool { change(&s.Fits[0].Scales[0]); return true }
	}
	for what, x := range map[string]savedAlone{"site unknown": {Site: "nowhere"}, "format unknown": {Format: "int3"},
		"format wide": {Format: precision.Half.Name}, "error negative": {Error: -1}} {
		out["alone: "+what] = func(s *Saved) bool {
			if x.Site != "" {
				s.Alone[0].Site = x.Site
			}
			if x.Format != "" {
				s.Alone[0].Format = x.Format
			}
			s.Alone[0].Error += 2 * x.Error
			return true
		}
	}
	out["alone twice"] = func(s *Saved) bool { s.Alone = append(s.Alone, s.Alone[0]); return true }
	return out
}

func (l *savedLayer) narrow() bool { return l.Codes != nil }

// A file whose digest is right is refused for each thing in it that no calibration finds; the one that was saved is
// taken.
func TestUse_RefusesForgedFindings(t *testing.T) {
	fulltest.Long(t)
	tried := map[string]bool{}
	for _, name := range []string{"fp8", "nvfp4"} {
		g, in := made(t, "policy", name, 2)
		c, err := New(g, name, in, Reference{}, nil)
		require.NoError(t, err)
		c.several = true
		p, err := precision.Lookup(name)
		require.NoError(t, err)
		a := Assignment{}
		for i, s := range c.Sites() {
			if a[s.Name()] = p.Candidates[0].WeightsOnly(); !s.Segmented() && i%4 != 0 {
				a[s.Name()] = p.Candidates[0]
			}
		}
		delete(a, c.Sites()[len(c.Sites())-1].Name())
		_, err = c.fit(t.Context(), a, Technique{Bias: true})
		require.NoError(t, err)
		c.found.alone[layerKey{c.Sites()[0].Name(), p.Candidates[0].WeightsOnly()}] = 1
		path := filepath.Join(t.TempDir(), "findings")
		require.NoError(t, c.Save(name).Write(path))
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		again, err := New(g, name, in, Reference{}, nil) // which a file that is refused leaves as it is
		require.NoError(t, err)
		origin := again.Origin(name)
		use := func(t *testing.T, raw []byte, change forge) error {
			require.NoError(t, os.WriteFile(path, raw, 0o666))
			s, err := ReadSaved(path, origin)
			if err != nil {
				return err
			}
			if change != nil {
				if !change(s) {
					t.Skip("this precision has no such thing")
				}
				raw, err := s.bytes()
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, raw, 0o666))
				if s, err = ReadSaved(path, origin); err != nil {
					return err
				}
			}
			if err = again.Use(s); err != nil {
				require.Empty(t, again.found.saved)
				require.Empty(t, again.found.means)
			}
			return err
		}
		refused := func(t *testing.T, err error) {
			require.ErrorContains(t, err, "--calibration "+path+": ")
			require.ErrorContains(t, err, "name another file, or delete this one")
		}
		all := forgeries()
		for _, what := range slices.Sorted(maps.Keys(all)) {
			t.Run(name+" "+what, func(t *testing.T) {
				if _, ok := tried[what]; !ok {
					tried[what] = false
				}
				refused(t, use(t, good, all[what]))
				tried[what] = true
			})
		}
		for what, change := range map[string][2]string{
			"two members of one name": {`"fits":`, `"fits":[],"fits":`},
			"member in capitals":      {`"fits":`, `"FITS":`},
			"null":                    {`"means":`, `"means":null,"means":`},
			"space":                   {`"fits":`, `"fits": `},
			"not a number":            {`"local":`, `"local":NaN,"local":`},
			"infinite":                {`"local":`, `"local":1e999,"local":`},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				_, body, _ := bytes.Cut(good, []byte("\n"))
				body = bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)
				head := fmt.Appendf(nil, "%s %d %x\n", savedMagic, savedVersion, sha256.Sum256(body))
				refused(t, use(t, append(head, body...), nil))
			})
		}
		require.NoError(t, use(t, good, nil))
	}
	for what, ok := range tried {
		require.True(t, ok, "%s was tried in no precision", what)
	}
}
