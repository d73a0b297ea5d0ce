package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// A pickle is a program for a stack machine (CPython's Lib/pickletools.py lists its instructions). This reader knows only
// those that make data: nothing is imported, called or executed. Values are
//
//	None nil · bool bool · int int64 · float float64 · str string · tuple pyTuple · list *pyList · dict *pyDict
//	slice pySlice
//
// Lists and dicts may contain themselves; whoever walks a value must not assume a tree.
type (
	pyTuple []any
	pyList  struct{ items []any }
	pyDict  struct {
		keys   []string // in order of insertion
		values map[string]any
	}
	pySlice struct{ start, stop *int64 } // nil where Python has None; the step is 1

	// sliceType is the one global that is admitted; it is on the stack until REDUCE makes a slice of it.
	sliceType struct{}
)

// Limits on a pickle: openpilot's have about a thousand bytes.
const (
	maxPickle      = 1 << 20
	maxPickleStack = 1 << 16
	maxPickleMemo  = 1 << 16
)

// unpickle reads the value of a pickle of any protocol (0 to 5).
func unpickle(data []byte) (any, error) {
	if len(data) > maxPickle {
		return nil, fmt.Errorf("the pickle has %d bytes, more than %d", len(data), maxPickle)
	}
	u := &unpickler{data: data, memo: map[int]any{}}
	v, err := u.run()
	if err != nil {
		return nil, fmt.Errorf("pickle, byte %d: %w", u.at, err)
	}
	return v, nil
}

type unpickler struct {
	data  []byte
	pos   int // next byte
	at    int // where the current instruction began
	stack []any
	marks []int // heights of the stack
	memo  map[int]any
}

var errPickleEnd = errors.New("the pickle ends within an instruction")

func (u *unpickler) run() (any, error) {
	for {
		u.at = u.pos
		op, err := u.take(1)
		if err != nil {
			return nil, errors.New("the pickle has no end")
		}
		if op[0] == '.' {
			v, err := u.pop()
			if err != nil {
				return nil, err
			}
			if _, ok := v.(sliceType); ok {
				return nil, errors.New("the value is a type, not data")
			}
			if u.pos != len(u.data) {
				return nil, fmt.Errorf("%d bytes follow the end of the pickle", len(u.data)-u.pos)
			}
			return v, nil
		}
		if err := u.step(op[0]); err != nil {
			return nil, err
		}
		if len(u.stack) > maxPickleStack || len(u.marks) > maxPickleStack || len(u.memo) > maxPickleMemo {
			return nil, errors.New("the pickle holds too many values")
		}
	}
}

// step executes one instruction.
func (u *unpickler) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		b, err := u.take(1)
		if err == nil && b[0] > 5 {
			err = fmt.Errorf("pickle protocol %d is newer than 5", b[0])
		}
		return err
	case 0x95: // FRAME
		n, err := u.uint(8)
		if err == nil && n > uint64(len(u.data)-u.pos) {
			err = errPickleEnd
		}
		return err
	case '(': // MARK
		u.marks = append(u.marks, len(u.stack))
		return nil
	case '0': // POP
		if n := len(u.marks); n > 0 && u.marks[n-1] == len(u.stack) {
			u.marks = u.marks[:n-1]
			return nil
		}
		_, err := u.pop()
		return err
	case '1': // POP_MARK
		_, err := u.popMark()
		return err
	case '2': // DUP
		v, err := u.top()
		return u.push(v, err)
	case 'p', 'q', 'r', 0x94, 'g', 'h', 'j':
		return u.stepMemo(op)
	case ')', ']', '}', 't', 'l', 'd', 0x85, 0x86, 0x87, 'a', 'e', 's', 'u':
		return u.stepContainer(op)
	case 'c', 0x93, 'R':
		return u.stepGlobal(op)
	default:
		return u.push(u.scalar(op))
	}
}

// stepMemo stores to and loads from the memo.
func (u *unpickler) stepMemo(op byte) error {
	var key int
	switch op {
	case 0x94: // MEMOIZE
		key = len(u.memo)
	case 'p', 'g': // PUT, GET
		line, err := u.line()
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil {
			return fmt.Errorf("%q is no memo index", line)
		}
		key = int(n)
	default: // BINPUT, BINGET, LONG_BINPUT, LONG_BINGET
		n, err := u.uint(map[byte]int{'q': 1, 'h': 1, 'r': 4, 'j': 4}[op])
		if err != nil {
			return err
		}
		key = int(n)
	}
	switch op {
	case 'g', 'h', 'j':
		v, ok := u.memo[key]
		if !ok {
			return fmt.Errorf("memo %d is not set", key)
		}
		return u.push(v, nil)
	}
	v, err := u.top()
	if err == nil {
		u.memo[key] = v
	}
	return err
}

// stepContainer makes and fills tuples, lists and dicts.
func (u *unpickler) stepContainer(op byte) error {
	switch op {
	case ')':
		return u.push(pyTuple{}, nil)
	case ']':
		return u.push(&pyList{}, nil)
	case '}':
		return u.push(&pyDict{values: map[string]any{}}, nil)
	case 0x85, 0x86, 0x87: // TUPLE1…3
		items, err := u.popN(int(op) - 0x84)
		return u.push(pyTuple(items), err)
	case 't':
		items, err := u.popMark()
		return u.push(pyTuple(items), err)
	case 'l':
		items, err := u.popMark()
		return u.push(&pyList{items}, err)
	case 'd':
		items, err := u.popMark()
		if err != nil {
			return err
		}
		d := &pyDict{values: map[string]any{}}
		if err := d.set(items); err != nil {
			return err
		}
		return u.push(d, nil)
	}
	// What remains fills the container below its items.
	var items []any
	var err error
	switch op {
	case 'a': // APPEND
		items, err = u.popN(1)
	case 's': // SETITEM
		items, err = u.popN(2)
	default: // APPENDS, SETITEMS
		items, err = u.popMark()
	}
	if err != nil {
		return err
	}
	v, err := u.top()
	if err != nil {
		return err
	}
	switch c := v.(type) {
	case *pyList:
		if op == 'a' || op == 'e' {
			c.items = append(c.items, items...)
			return nil
		}
	case *pyDict:
		if op == 's' || op == 'u' {
			return c.set(items)
		}
	}
	return fmt.Errorf("items are added to a %s", pyKind(v))
}

// set adds alternating keys and values.
func (d *pyDict) set(items []any) error {
	if len(items)%2 != 0 {
		return errors.New("a dict key has no value")
	}
	for i := 0; i < len(items); i += 2 {
		k, ok := items[i].(string)
		if !ok {
			return fmt.Errorf("a dict key is a %s, not a str", pyKind(items[i]))
		}
		if _, ok := d.values[k]; !ok {
			d.keys = append(d.keys, k)
		}
		d.values[k] = items[i+1]
	}
	return nil
}

// stepGlobal handles names of classes and functions: only slice is data.
func (u *unpickler) stepGlobal(op byte) error {
	if op == 'R' { // REDUCE
		items, err := u.popN(2)
		if err != nil {
			return err
		}
		if _, ok := items[0].(sliceType); !ok {
			return fmt.Errorf("a %s is called", pyKind(items[0]))
		}
		s, err := makeSlice(items[1])
		return u.push(s, err)
	}
	var module, name string
	if op == 'c' { // GLOBAL
		var err error
		if module, err = u.line(); err == nil {
			name, err = u.line()
		}
		if err != nil {
			return err
		}
	} else { // STACK_GLOBAL
		items, err := u.popN(2)
		if err != nil {
			return err
		}
		var ok0, ok1 bool
		module, ok0 = items[0].(string)
		name, ok1 = items[1].(string)
		if !ok0 || !ok1 {
			return errors.New("the name of a global is not a str")
		}
	}
	if name != "slice" || module != "builtins" && module != "__builtin__" {
		return fmt.Errorf("it refers to %.80q, and only slice is admitted", module+"."+name)
	}
	return u.push(sliceType{}, nil)
}

// makeSlice is slice(*args).
func makeSlice(args any) (pySlice, error) {
	t, ok := args.(pyTuple)
	if !ok || len(t) < 1 || len(t) > 3 {
		return pySlice{}, errors.New("slice takes one to three arguments")
	}
	if len(t) == 1 {
		t = pyTuple{nil, t[0], nil}
	}
	var bounds [3]*int64
	for i, a := range t {
		switch a := a.(type) {
		case nil:
		case int64:
			bounds[i] = &a
		default:
			return pySlice{}, fmt.Errorf("a bound of a slice is a %s", pyKind(a))
		}
	}
	if bounds[2] != nil && *bounds[2] != 1 {
		return pySlice{}, fmt.Errorf("a slice has step %d; only 1 is supported", *bounds[2])
	}
	return pySlice{bounds[0], bounds[1]}, nil
}

func (u *unpickler) push(v any, err error) error {
	if err == nil {
		u.stack = append(u.stack, v)
	}
	return err
}

// floor is the height that instructions may not pop below: the last mark.
func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

var errPickleStack = errors.New("the stack is empty")

func (u *unpickler) top() (any, error) {
	if len(u.stack) <= u.floor() {
		return nil, errPickleStack
	}
	return u.stack[len(u.stack)-1], nil
}

func (u *unpickler) pop() (any, error) {
	v, err := u.top()
	if err == nil {
		u.stack = u.stack[:len(u.stack)-1]
	}
	return v, err
}

func (u *unpickler) popN(n int) ([]any, error) {
	if len(u.stack)-u.floor() < n {
		return nil, errPickleStack
	}
	items := append([]any(nil), u.stack[len(u.stack)-n:]...)
	u.stack = u.stack[:len(u.stack)-n]
	return items, nil
}

// popMark pops everything above the last mark, and the mark.
func (u *unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("there is no mark on the stack")
	}
	items, err := u.popN(len(u.stack) - u.floor())
	u.marks = u.marks[:len(u.marks)-1]
	return items, err
}

func (u *unpickler) take(n int) ([]byte, error) {
	if n > len(u.data)-u.pos {
		return nil, errPickleEnd
	}
	b := u.data[u.pos : u.pos+n]
	u.pos += n
	return b, nil
}

// uint reads a little-endian number of n bytes.
func (u *unpickler) uint(n int) (uint64, error) {
	b, err := u.take(n)
	if err != nil {
		return 0, err
	}
	var word [8]byte
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:]), nil
}

// sized reads a length of n bytes and as many bytes.
func (u *unpickler) sized(n int) ([]byte, error) {
	size, err := u.uint(n)
	if err != nil {
		return nil, err
	}
	if size > uint64(len(u.data)-u.pos) {
		return nil, errPickleEnd
	}
	return u.take(int(size))
}

// line reads up to a newline, which is not part of it.
func (u *unpickler) line() (string, error) {
	i := bytes.IndexByte(u.data[u.pos:], '\n')
	if i < 0 {
		return "", errPickleEnd
	}
	b, _ := u.take(i + 1)
	return string(b[:i]), nil
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
