package ir

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

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
	Float6E3M2
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
	format *minifloat.Format // of a narrow float with a mantissa
}

// narrow is the row of a narrow float: an element takes the next power of two of bits.
func narrow(f *minifloat.Format) dtypeRow {
	bits := 1
	for bits < f.Bits() {
		bits *= 2
	}
	return dtypeRow{f.Name, bits, true, true, f}
}

var dtypes = [numDTypes]dtypeRow{
	Invalid:        {"invalid", 0, false, false, nil},
	Bool:           {"bool", 8, false, false, nil},
	Int4:           {"i4", 4, false, true, nil},
	Uint4:          {"u4", 4, false, false, nil},
	Int8:           {"i8", 8, false, true, nil},
	Uint8:          {"u8", 8, false, false, nil},
	Int16:          {"i16", 16, false, true, nil},
	Uint16:         {"u16", 16, false, false, nil},
	Int32:          {"i32", 32, false, true, nil},
	Uint32:         {"u32", 32, false, false, nil},
	Int64:          {"i64", 64, false, true, nil},
	Uint64:         {"u64", 64, false, false, nil},
	Float16:        narrow(minifloat.Float16),
	BFloat16:       narrow(minifloat.BFloat16),
	Float32:        {"f32", 32, true, true, nil},
	Float64:        {"f64", 64, true, true, nil},
	Float8E4M3FN:   narrow(minifloat.E4M3FN),
	Float8E4M3FNUZ: narrow(minifloat.E4M3FNUZ),
	Float8E5M2:     narrow(minifloat.E5M2),
	Float8E5M2FNUZ: narrow(minifloat.E5M2FNUZ),
	Float8E8M0:     {"e8m0", 8, true, false, nil},
	Float6E3M2:     narrow(minifloat.E3M2), // a byte each; kernels pack weights to 6 bits
	Float4E2M1:     narrow(minifloat.E2M1),
	Int2:           {"i2", 2, false, true, nil},
	Uint2:          {"u2", 2, false, false, nil},
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

// Format returns the format of a float of at most 16 bits with a mantissa; nil for others.
func (d DType) Format() *minifloat.Format { return dtypes[d].format }

// DTypeOf is the type whose elements have that format.
func DTypeOf(f *minifloat.Format) DType {
	return DType(slices.IndexFunc(dtypes[:], func(r dtypeRow) bool { return r.format == f }))
}

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

// MarshalText is String, for files.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDType.
func (d *DType) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDType(string(text))
	return err
}
