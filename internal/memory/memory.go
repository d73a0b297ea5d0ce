// Package memory bounds what reading and evaluating a file may take of the machine's memory: what a file of a few bytes can
// ask for is known before it is allocated. All files that come from outside are opened here: a FIFO that nothing writes to
// ends in an error.
package memory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Budget is a number of bytes.
type Budget int64

type key struct{}

// With returns a context in which Of is b.
func With(ctx context.Context, b Budget) context.Context { return context.WithValue(ctx, key{}, b) }

// Of is the budget of a context: that of With, else Default.
func Of(ctx context.Context) Budget {
	if b, ok := ctx.Value(key{}).(Budget); ok {
		return b
	}
	return Default()
}

// limit is what Limit has set; 0: nothing.
var limit atomic.Int64

// Limit sets the budget of the process, as debug.SetMemoryLimit does, and returns what takes it back. 0 is half of what the
// machine has.
func Limit(b Budget) (restore func()) {
	old := limit.Swap(int64(b))
	return func() { limit.Store(old) }
}

// Default is the budget of the process: that of Limit, else half of what the machine has, or of what its control group
// allows the process.
func Default() Budget {
	if b := limit.Load(); b > 0 {
		return Budget(b)
	}
	return half()
}

var half = sync.OnceValue(func() Budget {
	has := int64(math.MaxInt64)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var kb int64
			if n, _ := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kb); n == 1 {
				has = kb << 10
				break
			}
		}
	}
	if raw, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			has = min(has, n)
		}
	}
	return Budget(has / 2)
})

// Check is an error if something needs more than the budget.
func (b Budget) Check(need int64, what string) error {
	if need <= int64(b) {
		return nil
	}
	return budgetError(fmt.Sprintf("%s needs %v of memory, more than the %v that it may take (--memory)", what, Budget(need), b))
}

// ErrBudget is what the errors of Check are.
var ErrBudget = errors.New("it needs more memory than it may take")

type budgetError string

func (e budgetError) Error() string        { return string(e) }
func (e budgetError) Is(target error) bool { return target == ErrBudget }

func (b Budget) String() string {
	for _, u := range units {
		if b >= Budget(u.bytes) {
			return fmt.Sprintf("%.3g %s", float64(b)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", int64(b))
}

var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText reads a number with a unit: 8GiB, 512MiB, 1e9.
func (b *Budget) UnmarshalText(text []byte) error {
	s, factor := strings.TrimSpace(string(text)), 1.
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, factor = strings.TrimSpace(rest), float64(u.bytes)
		}
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0) || x*factor >= math.MaxInt64 {
		return fmt.Errorf("%q: want a number of bytes such as 8GiB, 512MiB or 1e9", text)
	}
	*b = Budget(x * factor)
	return nil
}
