package main

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/cost"
)

// lever is what a result decides: a constant of the cost model below or above a bound, and what to change then.
type lever struct {
	constant string
	below    bool // else above
	bound    float64
	of       string // constant that bound is a multiple of; "": bound is in the constant's unit
	then     string
}

// levers are in order of what they may be worth.
var levers = []lever{
	{"clock_ghz", true, 0.8, "published", "the clock is capped: no time of this run counts"},
	{"evict_first", true, 0.5, "", "eviction hints off by default (`SPARK_HINTS`), and no plan that counts on them"},
	{"prefetch_kept", true, 0.9, "", "a smaller window of prefetched weights, or none (`codegen/prefetch.go`)"},
	{"prefetch_rate", true, 0.8, "", "weights prefetched over more launches (`codegen/prefetch.go`)"},
	{"launch_plain_us", true, 1.1, "launch_us", "plain edges: programmatic launches gain nothing (`SPARK_PDL`)"},
	{"launch_us", false, 1, "", "fewer launches: fusion and chains are worth more than planned"},
	{"few_blocks_issue", true, 0.75, "", "launches of few blocks: more warps a block, not more blocks"},
	{"atomic_us", false, 1, "", "fewer slices in split-K"},
	{"barrier_clocks", false, 42, "", "deeper k tiles: fewer barriers"},
	{"l2_read_gbps", true, 0.8, "published", "larger tiles: operands are read from L2 less often"},
	{"l2_together", true, 0.8, "", "schedules that write more are cheaper than planned"},
	{"kept_share", true, 0.6, "", "quote cold times: weights do not stay in L2"},
	{"memory_gbps", true, 0.9, "published", "every floor rises; smaller weights are worth more"},
}

// condition says when the lever is pulled: < 0.5.
func (l *lever) condition() string {
	sign, of := ">", ""
	if l.below {
		sign = "<"
	}
	switch l.of {
	case "":
	case "published":
		of = " × published"
	default:
		of = " × `" + l.of + "`"
	}
	return fmt.Sprintf("%s %g%s", sign, l.bound, of)
}

// pulled reports whether a measured figure meets the condition, and whether that can be told.
func (l *lever) pulled(figures map[string]cost.Figure, published float64) (yes, known bool) {
	x, ok := figures[l.constant]
	if !ok {
		return false, false
	}
	bound := l.bound
	switch l.of {
	case "":
	case "published":
		bound *= published
	default:
		other, ok := figures[l.of]
		if !ok {
			return false, false
		}
		bound *= other.Middle
	}
	if l.below {
		return x.Middle < bound, true
	}
	return x.Middle > bound, true
}

// leverTable is docs/data/gpu-decisions.csv.
func leverTable() [][]string {
	rows := [][]string{{"constant", "if", "then"}}
	for i := range levers {
		rows = append(rows, []string{levers[i].constant, levers[i].condition(), levers[i].then})
	}
	return rows
}
