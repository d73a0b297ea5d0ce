package runtime

import (
	"fmt"
	"slices"
)

// AddAgain adds an entry that is another one so many times: what it keeps goes from one time to the next on the device, and
// outputs are those of the last. Its host work and the cost of its start are those of one run. It fails on states with
// delays, whose buffers take turns from run to run.
func (v *Variant) AddAgain(p *Program, name, entry string, times int) error {
	e := v.Entry(entry)
	switch {
	case e == nil:
		return fmt.Errorf("there is no entry %q to run again as %q", entry, name)
	case v.Entry(name) != nil:
		return fmt.Errorf("there is an entry %q already", name)
	case times < 1:
		return fmt.Errorf("entry %q is to run entry %q %d times, want once at least", name, entry, times)
	}
	for _, s := range p.States {
		if s.Delay > 1 {
			return fmt.Errorf("entry %q cannot run entry %q %d times: state %q comes back %d runs later", name, entry, times, s.Input, s.Delay)
		}
	}
	list := slices.Repeat(e.Launches, times)
	first, each := e.Launches, len(e.Launches)
	for i := each; i < len(list); i += each {
		// The first launch of a run waits for the last of the one before, where kernels can.
		list[i].Dependent = each > 1 && first[1].Dependent && first[0].Copy == nil && first[each-1].Copy == nil
	}
	v.Order(list)
	v.Entries = append(v.Entries, Entry{Name: name, Launches: list})
	return nil
}
