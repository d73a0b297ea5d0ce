package route

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Event is a message of a log. It can be decoded until the next call of its Reader's Next; what was decoded stays.
type Event struct {
	_ struct{} `capnp:"2 1"`

	Time  uint64 `capnp:"logMonoTime 0"` // ns since boot, of the device's clock; not sorted
	Kind  Kind   `capnp:"which 64"`
	Valid bool   `capnp:"valid 80 1"` // as its sender judged it

	message *capnp.Message
	payload capnp.Ptr
	size    uint64 // of the message in bytes
}

var eventLayout = sync.OnceValue(func() *layout { return compile(reflect.TypeFor[Event](), map[reflect.Type]*layout{}) })

// open reads the root of a message.
func (e *Event) open(m *capnp.Message, size int) error {
	e.message, e.payload, e.size = m, capnp.Ptr{}, uint64(size)
	p, err := m.Root()
	if err != nil {
		return err
	}
	root := p.Struct()
	if !root.IsValid() || root.Size().DataSize == 0 {
		return errEmpty
	}
	if err := eventLayout().decode(root, reflect.ValueOf(e).Elem()); err != nil {
		return err
	}
	e.payload, err = root.Ptr(0)
	return err
}

// Decode reads the message into a value of the type that its kind has: *CarState for KindCarState, *FrameData for the states of
// cameras, *CANFrames for KindCAN. The value's slices are reused, so decoding into one value again and again allocates nothing, and
// whoever keeps the slices passes a new value each time. An error means that the message is damaged and says where; reading the
// log may go on.
func (e *Event) Decode(into any) error {
	m, v := e.Kind.row(), reflect.ValueOf(into)
	if m == nil {
		return fmt.Errorf("%s has no type", e.Kind)
	}
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem() != m.typ {
		return fmt.Errorf("%s is to be decoded into a *%s, not a %T", e.Kind, m.typ, into)
	}
	if e.message == nil {
		return errors.New("an event that no Reader has read has no message")
	}
	if err := memory.Default().Check(2*maxGrowth*int64(e.size), "decoding it"); err != nil {
		return fmt.Errorf("%s at %d ns: %w", m.name, e.Time, err)
	}
	// Pointers that share what they lead to, which no writer makes, must not multiply a message.
	e.message.ResetReadLimit(2 * e.size)
	if err := m.payload.decodePointer(e.payload, v.Elem()); err != nil {
		return fmt.Errorf("%s at %d ns: %w", m.name, e.Time, err)
	}
	return nil
}

// Message decodes the message into a new value: a *CarState for KindCarState, and so on.
func (e *Event) Message() (any, error) {
	m := e.Kind.row()
	if m == nil {
		return nil, fmt.Errorf("%s has no type", e.Kind)
	}
	v := reflect.New(m.typ).Interface()
	return v, e.Decode(v)
}
