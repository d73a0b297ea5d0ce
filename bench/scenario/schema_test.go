package scenario

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the schema of scenario files again")

const schemaFile = "../../docs/scenario.schema.json"

func TestSchema_IsThatOfTheTables(t *testing.T) {
	if *update {
		require.NoError(t, os.WriteFile(schemaFile, Schema(), 0o644))
	}
	raw, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.True(t, bytes.Equal(Schema(), raw), "go test ./bench/scenario -run TestSchema -update writes %s again", schemaFile)
}

// TestSchema_AcceptsWhatIsRead: every family as YAML, and one of everything; and it refuses what is refused.
func TestSchema_AcceptsWhatIsRead(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("scenario.json", doc))
	schema, err := c.Compile("scenario.json")
	require.NoError(t, err)
	judge := func(tier Tier, text string) (bySchema, byReader error) {
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value), text)
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		value, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		require.NoError(t, err)
		_, _, byReader = tier.parse([]byte(text), "")
		return schema.Validate(value), byReader
	}
	good := []string{
		`scenarios: [{}]`,
		`scenarios: [{name: a, family: curve, set: {speed: 20}, vary: {wind: {normal: [0, 1]}, mass: {choice: [1000]}}, sweep: {latency: [0, 0.1]}}]`,
		`scenarios: [{road: {distance: [0, 100, 160], curvature: [0, 0, 0.003], speed: [20, 20, 15]}}]`,
		`scenarios: [{road: {spacing: 5, curvature: [0, 0.003], interval: 0.1, speed: [9, 9, 9], lead: [9, 9, 9], lead_speed: [0, 0, 0]}}]`,
		`{replay: {scenario: a, loop: 3, seed: 18446744073709551615}, scenarios: [{set: {speed: 3}}]}`,
		`{replay: {scenario: a, loop: 3, seed: 1, min_cosine: 0.5}, scenarios: [{set: {speed: 3}}]}`,
	}
	check := func(tier Tier, text string) {
		bySchema, byReader := judge(tier, text)
		require.NoError(t, bySchema, text)
		require.NoError(t, byReader, text)
	}
	for _, text := range good {
		check(Planner, text)
	}
	for _, tier := range []Tier{Planner, Controls} {
		for _, f := range tier.Families() {
			check(tier, "scenarios: [{family: "+f.Name+"}]")
			f.Doc = ""
			raw, err := yaml.Marshal(map[string]any{"scenarios": []any{entry(f)}})
			require.NoError(t, err)
			check(tier, string(raw))
			back, _, err := tier.parse(raw, "")
			require.NoError(t, err)
			require.Equal(t, f.Vary, back[0].Vary)
			s, err := f.Draw(3, 4)
			require.NoError(t, err)
			again, err := back[0].Draw(3, 4)
			require.NoError(t, err)
			require.Equal(t, s, again)
		}
	}
	for _, text := range []string{
		`{}`, `scenarios: []`, `scenarios: {}`, `[]`, `{scenarios: [{}], more: 1}`,
		`scenarios: [{name: ""}]`, `scenarios: [{family: curv}]`, `scenarios: [{sets: {}}]`, `scenarios: [{set: {sped: 3}}]`,
		`scenarios: [{set: {speed: fast}}]`, `scenarios: [{set: {speed: 61}}]`, `scenarios: [{set: {speed: [3]}}]`,
		`scenarios: [{vary: {speed: 3}}]`, `scenarios: [{vary: {speed: {}}}]`, `scenarios: [{vary: {speed: {uniform: [1]}}}]`,
		`scenarios: [{vary: {speed: {uniform: [1, 99]}}}]`, `scenarios: [{vary: {speed: {normal: [3, -1]}}}]`,
		`scenarios: [{vary: {speed: {choice: []}}}]`, `scenarios: [{vary: {speed: {uniform: [1, 2], choice: [3]}}}]`,
		`scenarios: [{vary: {speed: {gamma: [1, 2]}}}]`, `scenarios: [{sweep: {speed: 3}}]`, `scenarios: [{sweep: {speed: []}}]`,
		`scenarios: [{road: {spacing: 5}}]`, `scenarios: [{road: {spacing: 0, curvature: [0, 0]}}]`, `scenarios: [{road: ""}]`,
		`scenarios: [{road: {spacing: 5, curvature: [0]}}]`, `scenarios: [{road: {spacing: 5, curvature: [0, 1]}}]`,
		`scenarios: [{road: {spacing: 5, curvature: [0, 0], banks: [0, 0]}}]`, `scenarios: [{road: []}]`,
		`scenarios: [{set: {latency: 0.03}}]`, `scenarios: [{set: {dynamic: 0.5}}]`, `scenarios: [{sweep: {car1_idm: [0.5]}}]`,
		`scenarios: [{vary: {latency: {uniform: [0, 0.1]}}}]`, `scenarios: [{vary: {car0_present: {choice: [0.1]}}}]`,
	} {
		bySchema, byReader := judge(Planner, text)
		require.Error(t, bySchema, text)
		require.Error(t, byReader, text)
	}
}

// entry is a family as an entry of a file.
func entry(f Family) map[string]any {
	vary := map[string]any{}
	for name, d := range f.Vary {
		for kind, list := range map[string][]float64{"uniform": d.Uniform, "normal": d.Normal, "choice": d.Choice} {
			if list != nil {
				vary[name] = map[string]any{kind: list}
			}
		}
	}
	values := f.Values
	if values == nil {
		values = map[string]float64{}
	}
	return map[string]any{"name": f.Name, "set": values, "vary": vary}
}
