package library

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// flat is a struct of numbers as one vector of float64, so that it crosses to another language in one copy, and a text in JSON that says
// what is where in it:
//
//	struct                       {"frame_id": …, "plan": …}: fields in lower case, with _ between words
//	map                          the same, with its keys as they are
//	slice or array of structs    [ …, … ]
//	nil                          null
//	numbers                      {"@": [offset, [dimensions], kind]}; no dimensions: one number. kind: f float64, i integer, b boolean (0 or 1)
//
// Slices of numbers are vectors, slices and arrays of such of one length are arrays of more dimensions.
type flat struct {
	values []float64
	layout string
	shape  []int // lengths and what is nil, by which a layout is known again
	places map[string][2]int
}

// fill takes the numbers of a struct, or of a pointer to one.
func (f *flat) fill(x any) error {
	f.values = f.values[:0]
	var shape []int
	if err := f.put(reflect.ValueOf(x), &shape); err != nil {
		return err
	}
	if f.layout != "" && slices.Equal(shape, f.shape) {
		return nil
	}
	f.shape, f.places = shape, map[string][2]int{}
	at := 0
	tree, err := f.describe(reflect.ValueOf(x), "", &at)
	if err != nil {
		return err
	}
	text, err := json.Marshal(tree)
	f.layout = string(text)
	return err
}

func (f *flat) find(path string) (offset, count int, err error) {
	at, ok := f.places[path]
	if !ok {
		return 0, 0, fmt.Errorf("the step said nothing of %q; it has %s", path, strings.Join(slices.Sorted(maps.Keys(f.places)), ", "))
	}
	return at[0], at[1], nil
}

// put appends the numbers in the order of describe, and what decides the layout.
func (f *flat) put(v reflect.Value, shape *[]int) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			*shape = append(*shape, -1)
			return nil
		}
		*shape = append(*shape, 1)
		return f.put(v.Elem(), shape)
	case reflect.Struct:
		for i := range v.NumField() {
			if err := f.put(v.Field(i), shape); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			if *shape = append(*shape, v.Len()); v.IsNil() {
				(*shape)[len(*shape)-1] = -1
			}
		}
		if x, ok := v.Interface().([]float64); ok {
			f.values = append(f.values, x...)
			return nil
		}
		for i := range v.Len() {
			if err := f.put(v.Index(i), shape); err != nil {
				return err
			}
		}
	case reflect.Map:
		*shape = append(*shape, v.Len())
		for _, k := range keys(v) {
			for _, c := range k.String() { // other keys are another layout
				*shape = append(*shape, int(c))
			}
			if err := f.put(v.MapIndex(k), shape); err != nil {
				return err
			}
		}
	case reflect.Float64:
		f.values = append(f.values, v.Float())
	case reflect.Bool:
		x := 0.0
		if v.Bool() {
			x = 1
		}
		f.values = append(f.values, x)
	case reflect.Int, reflect.Int64:
		f.values = append(f.values, float64(v.Int()))
	case reflect.Uint32:
		f.values = append(f.values, float64(v.Uint()))
	default:
		return fmt.Errorf("a %v does not go into a vector of numbers", v.Type())
	}
	return nil
}

// describe makes the layout, and notes where every path begins and how many numbers it has.
func (f *flat) describe(v reflect.Value, path string, at *int) (tree any, err error) {
	if dims, kind, ok := numbers(v); ok {
		n := 1
		for _, d := range dims {
			n *= d
		}
		begin := *at
		*at += n
		f.places[path] = [2]int{begin, n}
		return map[string]any{"@": []any{begin, dims, kind}}, nil
	}
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return f.describe(v.Elem(), path, at)
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			name := snake(v.Type().Field(i).Name)
			if out[name], err = f.describe(v.Field(i), join(name), at); err != nil {
				return nil, err
			}
		}
		return out, nil
	case reflect.Map:
		out := map[string]any{}
		for _, k := range keys(v) {
			if out[k.String()], err = f.describe(v.MapIndex(k), join(k.String()), at); err != nil {
				return nil, err
			}
		}
		return out, nil
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil, nil
		}
		out := []any{}
		for i := range v.Len() {
			part, err := f.describe(v.Index(i), join(strconv.Itoa(i)), at)
			if err != nil {
				return nil, err
			}
			out = append(out, part)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a %v does not go into a vector of numbers", v.Type())
}

// numbers reports whether v is a number, or an array of such; then its dimensions and kind.
func numbers(v reflect.Value) (dims []int, kind string, ok bool) {
	switch v.Kind() {
	case reflect.Float64:
		return []int{}, "f", true
	case reflect.Bool:
		return []int{}, "b", true
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return []int{}, "i", true
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil, "", false
		}
		if v.Len() == 0 {
			_, kind, ok = numbers(reflect.Zero(v.Type().Elem()))
			return []int{0}, kind, ok
		}
		var inner []int
		for i := range v.Len() {
			d, k, is := numbers(v.Index(i))
			if !is || i > 0 && !slices.Equal(d, inner) {
				return nil, "", false
			}
			inner, kind = d, k
		}
		return append([]int{v.Len()}, inner...), kind, true
	}
	return nil, "", false
}

func keys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
}

// snake is a Go name as others write it: FrameID frame_id, PositionStd position_std.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
