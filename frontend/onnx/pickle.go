package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A pickle is a program for a stack machine (CPython's Lib/pickletools.py lists its instructions). This reader
// supports only instructions that make data: it imports, calls and executes nothing. Values are
//
//	None nil · bool bool · int int64 · float float64 · str string · tuple pyTuple · list *pyList · dict *pyDict
//	slice pySlice
//
// Lists and dicts may contain themselves, so a value need not be a tree.
type (
	pyTuple []any
	pyList  struct{ items []any }
	pyDict  struct {
		keys   []string // in order of insertion
		values map[string]any
	}
	pySlice struct{ start, stop *int64 } // nil where Python has None; the step is 1

	// sliceType is the only global allowed. It is on the stack until REDUCE makes a slice.
	sliceType struct{}
)

// Limits on a pickle; openpilot's are about a thousand bytes.
const (
	maxPickle       = 1 << 20
	maxPickleValues = 1 << 16
	maxPickleMemo   = 1 << 16
)

// unpickle reads the value of a pickle of any protocol (0 to 5).
func unpickle(data []byte) (any, error) {
	if len(data) > maxPickle {
		return nil, fmt.Errorf("the pickle has %d bytes, more than %d", len(data), maxPickle)
	}
	u := &unpickler{data: data, memo: map[int]any{}}
	v := u.run()
	if u.err != nil {
		return nil, fmt.Errorf("pickle, byte %d: %w", u.at, u.err)
	}
	return v, nil
}

// unpickler is the machine. After the first error its methods go on with zero values; run stops after the instruction.
type unpickler struct {
	data   []byte
	pos    int // next byte
	at     int // where the current instruction began
	values []any
	marks  []int // heights of the stack
	memo   map[int]any
	err    error
}

var errPickleEnd = errors.New("the pickle ends within an instruction")

func (u *unpickler) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, args...)
	}
}

func (u *unpickler) run() any {
	for u.err == nil {
		u.at = u.pos
		if u.pos == len(u.data) {
			u.fail("the pickle has no end")
			break
		}
		op := u.take(1)[0]
		if op == '.' {
			v := u.pop()
			if _, ok := v.(sliceType); ok {
				u.fail("the value is a type, not data")
			}
			if u.pos != len(u.data) {
				u.fail("%d bytes follow the end of the pickle", len(u.data)-u.pos)
			}
			return v
		}
		u.step(op)
		if len(u.values) > maxPickleValues || len(u.marks) > maxPickleValues || len(u.memo) > maxPickleMemo {
			u.fail("the pickle holds too many values")
		}
	}
	return nil
}

// step executes one instruction: of the machine, of the memo, or of what makes and fills containers.
func (u *unpickler) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := u.uint(1); v > 5 {
			u.fail("pickle protocol %d is newer than 5", v)
		}
	case 0x95: // FRAME
		if n := u.uint(8); n > uint64(len(u.data)-u.pos) {
			u.fail("%w", errPickleEnd)
		}
	case '(': // MARK
		u.marks = append(u.marks, len(u.values))
	case '0': // POP
		if n := len(u.marks); n > 0 && u.marks[n-1] == len(u.values) {
			u.marks = u.marks[:n-1]
		} else {
			u.pop()
		}
	case '1': // POP_MARK
		u.popMark()
	case '2': // DUP
		u.push(u.top())
	case 'p': // PUT
		u.put(u.index())
	case 'q': // BINPUT
		u.put(int(u.uint(1)))
	case 'r': // LONG_BINPUT
		u.put(int(u.uint(4)))
	case 0x94: // MEMOIZE
		u.put(len(u.memo))
	case 'g': // GET
		u.get(u.index())
	case 'h': // BINGET
		u.get(int(u.uint(1)))
	case 'j': // LONG_BINGET
		u.get(int(u.uint(4)))
	case ')': // EMPTY_TUPLE
		u.push(pyTuple{})
	case 0x85, 0x86, 0x87: // TUPLE1…3
		u.push(pyTuple(u.popN(int(op) - 0x84)))
	case 't': // TUPLE
		u.push(pyTuple(u.popMark()))
	case ']': // EMPTY_LIST
		u.push(&pyList{})
	case 'l': // LIST
		u.push(&pyList{u.popMark()})
	case 'a': // APPEND
		u.extend(u.popN(1))
	case 'e': // APPENDS
		u.extend(u.popMark())
	case '}': // EMPTY_DICT
		u.push(&pyDict{values: map[string]any{}})
	case 'd': // DICT
		items := u.popMark()
		u.push(&pyDict{values: map[string]any{}})
		u.set(items)
	case 's': // SETITEM
		u.set(u.popN(2))
	case 'u': // SETITEMS
		u.set(u.popMark())
	case 'c': // GLOBAL
		u.global(u.line(), u.line())
	case 0x93: // STACK_GLOBAL
		items := u.popN(2)
		u.global(items[0], items[1])
	case 'R': // REDUCE
		items := u.popN(2)
		if _, ok := items[0].(sliceType); !ok {
			u.fail("a %s is called", pyKind(items[0]))
		}
		u.push(u.slice(items[1]))
	default:
		u.push(u.scalar(op))
	}
}

// put stores the top of the stack in the memo.
func (u *unpickler) put(key int) {
	if v := u.top(); u.err == nil {
		u.memo[key] = v
	}
}

// get pushes what the memo holds.
func (u *unpickler) get(key int) {
	v, ok := u.memo[key]
	if !ok {
		u.fail("memo %d is not set", key)
	}
	u.push(v)
}

// index reads a memo index as text.
func (u *unpickler) index() int {
	line := u.line()
	n, err := strconv.ParseUint(line, 10, 31)
	if err != nil {
		u.fail("%q is not a memo index", line)
	}
	return int(n)
}

// extend appends items to the list on top of the stack.
func (u *unpickler) extend(items []any) {
	v := u.top()
	if l, ok := v.(*pyList); ok {
		l.items = append(l.items, items...)
	} else {
		u.fail("items are added to a %s", pyKind(v))
	}
}

// set adds alternating keys and values to the dict on top of the stack.
func (u *unpickler) set(items []any) {
	v := u.top()
	d, ok := v.(*pyDict)
	if !ok {
		u.fail("items are added to a %s", pyKind(v))
		return
	}
	if len(items)%2 != 0 {
		u.fail("a dict key has no value")
		return
	}
	for pair := range slices.Chunk(items, 2) {
		k, ok := pair[0].(string)
		if !ok {
			u.fail("a dict key is a %s, not a str", pyKind(pair[0]))
			return
		}
		if _, ok := d.values[k]; !ok {
			d.keys = append(d.keys, k)
		}
		d.values[k] = pair[1]
	}
}

// global pushes a class or a function by its name: only slice is data.
func (u *unpickler) global(module, name any) {
	m, ok0 := module.(string)
	n, ok1 := name.(string)
	switch {
	case !ok0 || !ok1:
		u.fail("the name of a global is not a str")
	case n != "slice" || m != "builtins" && m != "__builtin__":
		u.fail("it refers to %.80q; only slice is allowed", m+"."+n)
	}
	u.push(sliceType{})
}

// slice is slice(*args).
func (u *unpickler) slice(args any) (s pySlice) {
	t, ok := args.(pyTuple)
	if !ok || len(t) < 1 || len(t) > 3 {
		u.fail("slice takes one to three arguments")
		return s
	}
	if len(t) == 1 {
		t = pyTuple{nil, t[0], nil}
	}
	var bounds [3]*int64
	for i, a := range t {
		if n, ok := a.(int64); ok {
			bounds[i] = &n
		} else if a != nil {
			u.fail("a bound of a slice is a %s", pyKind(a))
		}
	}
	if bounds[2] != nil && *bounds[2] != 1 {
		u.fail("a slice has step %d; only 1 is supported", *bounds[2])
	}
	return pySlice{bounds[0], bounds[1]}
}

func (u *unpickler) push(v any) { u.values = append(u.values, v) }

// popN pops n values, but none below the last mark.
func (u *unpickler) popN(n int) []any {
	floor := 0
	if len(u.marks) > 0 {
		floor = u.marks[len(u.marks)-1]
	}
	if len(u.values)-floor < n {
		u.fail("the stack is empty")
		return make([]any, n)
	}
	items := slices.Clone(u.values[len(u.values)-n:])
	u.values = u.values[:len(u.values)-n]
	return items
}

func (u *unpickler) pop() any { return u.popN(1)[0] }

func (u *unpickler) top() any {
	v := u.pop()
	u.push(v)
	return v
}

// popMark pops everything above the last mark, and the mark.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.fail("there is no mark on the stack")
		return nil
	}
	items := u.popN(len(u.values) - u.marks[len(u.marks)-1])
	u.marks = u.marks[:len(u.marks)-1]
	return items
}

// take reads n bytes; it returns none if there are fewer.
func (u *unpickler) take(n uint64) []byte {
	if n > uint64(len(u.data)-u.pos) {
		u.fail("%w", errPickleEnd)
		return nil
	}
	u.pos += int(n)
	return u.data[u.pos-int(n) : u.pos]
}

// uint reads a little-endian number of n bytes.
func (u *unpickler) uint(n uint64) uint64 {
	var word [8]byte
	copy(word[:], u.take(n))
	return binary.LittleEndian.Uint64(word[:])
}

// sized reads a length of n bytes and as many bytes.
func (u *unpickler) sized(n uint64) []byte { return u.take(u.uint(n)) }

// line reads up to a newline, which is not part of it.
func (u *unpickler) line() string {
	i := bytes.IndexByte(u.data[u.pos:], '\n')
	if i < 0 {
		u.fail("%w", errPickleEnd)
		return ""
	}
	return string(u.take(uint64(i + 1))[:i])
}

// pyKind is Python's name of a value's type.
func pyKind(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case pyTuple:
		return "tuple"
	case *pyList:
		return "list"
	case *pyDict:
		return "dict"
	case pySlice:
		return "slice"
	default:
		return "type"
	}
}
