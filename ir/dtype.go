package ir

import "fmt"

// DType is the element type of a tensor.
type DType uint8

// Element types. The order is that of the table dtypes below.
const (
	Invalid DType = iota
	Bool
	Int4
	Uint4
	Int8
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Float8E4M3FN
	Float8E4M3FNUZ
	Float8E5M2
	Float8E5M2FNUZ
	Float8E8M0
	Float4E2M1
	Int2
	Uint2
	numDTypes
)

type dtypeRow struct {
	name   string // in the text form of the IR
	bits   int
	float  bool
	signed bool
}

var dtypes = [numDTypes]dtypeRow{
	Invalid:        {"invalid", 0, false, false},
	Bool:           {"bool", 8, false, false},
	Int4:           {"i4", 4, false, true},
	Uint4:          {"u4", 4, false, false},
	Int8:           {"i8", 8, false, true},
	Uint8:          {"u8", 8, false, false},
	Int16:          {"i16", 16, false, true},
	Uint16:         {"u16", 16, false, false},
	Int32:          {"i32", 32, false, true},
	Uint32:         {"u32", 32, false, false},
	Int64:          {"i64", 64, false, true},
	Uint64:         {"u64", 64, false, false},
	Float16:        {"f16", 16, true, true},
	BFloat16:       {"bf16", 16, true, true},
	Float32:        {"f32", 32, true, true},
	Float64:        {"f64", 64, true, true},
	Float8E4M3FN:   {"e4m3", 8, true, true},
	Float8E4M3FNUZ: {"e4m3fnuz", 8, true, true},
	Float8E5M2:     {"e5m2", 8, true, true},
	Float8E5M2FNUZ: {"e5m2fnuz", 8, true, true},
	Float8E8M0:     {"e8m0", 8, true, false},
	Float4E2M1:     {"e2m1", 4, true, true},
	Int2:           {"i2", 2, false, true},
	Uint2:          {"u2", 2, false, false},
}

// String returns the name used in the text form: f32, i64, bool, e4m3 …
func (d DType) String() string {
	if d < numDTypes {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Bits is the storage size of one element; sub-byte elements are packed, lowest bits first.
func (d DType) Bits() int { return dtypes[d].bits }

// IsFloat reports whether d is a floating-point type of any width.
func (d DType) IsFloat() bool { return dtypes[d].float }

// IsInt reports whether d is an integer type (bool is not).
func (d DType) IsInt() bool { return d != Bool && d != Invalid && !dtypes[d].float }

// IsSigned reports whether d can hold negative numbers.
func (d DType) IsSigned() bool { return dtypes[d].signed }

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for d, r := range dtypes {
		if r.name == s && DType(d) != Invalid {
			return DType(d), nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", s)
}
