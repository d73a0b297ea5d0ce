package library

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Errors that callers distinguish, in addition to those of package hal.
var (
	ErrClosed = errors.New("the model is closed: open it again")
	ErrBusy   = errors.New("the model is in use in another thread: an open model is for one thread at a time, open it once more for a second one")
)

// Code is what a call of the library returns.
type Code int32

// Codes; sparkcompile.h has them too.
const (
	OK        Code = iota
	BadInput       // what the caller gave is wrong; the text says what and what helps
	Closed         // the model is closed
	Busy           // another thread uses the model, or the device runs on
	BadDevice      // the device, its driver or memory
	Bug            // ours
)

// CodeOf is the code of an error.
func CodeOf(err error) Code {
	for _, c := range []struct {
		is   error
		code Code
	}{{ErrClosed, Closed}, {ErrBusy, Busy}, {modeld.ErrRunning, Busy}, {hal.ErrBusy, Busy}, {hal.ErrNoDriver, BadDevice}, {hal.ErrDriverTooOld, BadDevice},
		{hal.ErrNoDevice, BadDevice}, {hal.ErrOutOfMemory, BadDevice}, {hal.ErrBadModule, BadDevice}, {hal.ErrNoVariant, BadDevice}, {hal.ErrDeviceLost, BadDevice}} {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	switch {
	case err == nil:
		return OK
	case errors.As(err, new(*panicked)):
		return Bug
	case errors.As(err, new(*hal.Error)):
		return BadDevice
	}
	return BadInput
}

// panicked is a panic, which is a bug of ours.
type panicked struct {
	value any
	trace []byte
}

func (p *panicked) Error() string {
	return fmt.Sprintf("this is a bug in sparkcompile %s (%v): please report it with this text, and the model if you can\n%s", cli.Version(), p.value, p.trace)
}

// Caught is run(), whose panic is an error: none crosses into C.
func Caught(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return run()
}
