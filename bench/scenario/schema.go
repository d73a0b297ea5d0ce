package scenario

import (
	"encoding/json"
	"slices"
)

// Schema is the JSON Schema (draft 2020-12) of scenario files, made of the tables of parameters and families. What it
// cannot say, ReadFile checks: that names are unique, that a parameter stands under one of set, vary and sweep, and that
// uniform is not upside down, and that a road has one of distance and spacing, lists of one length, and distances that
// grow.
func Schema() []byte {
	type object = map[string]any
	number := func(p Param) object {
		o := object{"type": "number", "minimum": p.Low, "maximum": p.High, "default": p.Default}
		text := p.Doc
		if p.Unit != "" {
			text = p.Unit
			if p.Doc != "" {
				text += ": " + p.Doc
			}
		}
		if text != "" {
			o["description"] = text
		}
		if values := p.multiples(); values != nil {
			o["enum"] = values
		}
		return o
	}
	ref := func(name string) object { return object{"$ref": "#/$defs/" + name} }
	closed := func(properties object, required ...string) object {
		o := object{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			o["required"] = required
		}
		return o
	}
	array := func(items object, least, most int) object {
		o := object{"type": "array", "items": items, "minItems": least}
		if most > 0 {
			o["maxItems"] = most
		}
		return o
	}
	defs, set, vary, sweep := object{}, object{}, object{}, object{}
	for _, p := range Params {
		defs[p.Name] = number(p)
		value := ref(p.Name)
		set[p.Name] = value
		normal := object{"type": "array", "prefixItems": []object{value, {"type": "number", "minimum": 0}}, "minItems": 2, "maxItems": 2}
		kinds := object{"choice": array(value, 1, 0)}
		if p.multiples() == nil {
			kinds["uniform"], kinds["normal"] = array(value, 2, 2), normal
		}
		vary[p.Name] = object{"type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
			"properties": kinds}
		sweep[p.Name] = array(value, 1, maxFamilies)
	}
	road := func() object {
		positive := func(doc string) object { return object{"type": "number", "exclusiveMinimum": 0, "description": doc} }
		inline := object{
			distance.Name: array(number(distance), 2, MaxKnots),
			"spacing":     positive("m: between knots that are evenly spaced, instead of distance"),
			"interval":    positive("s: between samples of what is recorded; left out: speed is that at the knots"),
		}
		for _, c := range roadColumns {
			items := number(c.Param)
			delete(items, "default")
			inline[c.Name] = array(items, 2, MaxKnots)
		}
		delete(inline[distance.Name].(object)["items"].(object), "default")
		file := object{"type": "string", "minLength": 1,
			"description": "CSV file beside this one, with columns distance and curvature, and grade, bank and speed if they are known"}
		return object{"oneOf": []object{file, closed(inline, roadColumns[columnCurvature].Name)}}
	}
	var families []string
	for _, f := range slices.Concat(Planner.Families(), Controls.Families()) {
		families = append(families, f.Name)
	}
	text := object{"type": "string", "minLength": 1, "maxLength": 200}
	whole := object{"type": "integer", "minimum": 0}
	scenario := closed(object{
		"name":   text,
		"family": object{"enum": families, "description": "built-in family that the others change; left out: an empty straight road"},
		"road":   road(),
		"set":    closed(set), "vary": closed(vary), "sweep": closed(sweep),
	})
	schema := closed(object{
		"scenarios": array(scenario, 1, maxFamilies),
		"replay": closed(object{"scenario": text, "loop": whole, "seed": whole, "algorithm": object{"type": "string"},
			"tier":       object{"enum": []string{Controls.String()}},
			"min_cosine": object{"type": "number", "minimum": 0, "exclusiveMaximum": 1}},
			"scenario", "loop", "seed"),
	}, "scenarios")
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Scenario file of spark-sim"
	schema["$defs"] = defs
	raw, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		panic(err) // a table has a number that is not finite
	}
	return append(raw, '\n')
}
