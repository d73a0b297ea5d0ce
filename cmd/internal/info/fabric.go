package info

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/hal/machine"
)

// connected describes what connects this machine to others that train with it. It exits with 1 if something is known to go wrong.
func (t *tool) connected() error {
	f := machine.FabricReader{Sys: os.DirFS("/sys"), Getenv: os.LookupEnv, Addresses: addresses, Libraries: func() map[string]string { return collectives.Libraries(os.Getenv) }}.Read()
	if t.JSON != "" {
		return t.write(f)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "device\tinterface\tstate\trate\tPCIe")
	for _, d := range f.Devices {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s x%d\n", d.Name, strings.Join(d.Interfaces, ", "), d.State, d.Rate, d.Link.Speed, d.Link.Width)
	}
	fmt.Fprintln(w, "\ninterface\tup\tMTU\tMbit/s\taddresses")
	for _, n := range f.Interfaces {
		fmt.Fprintf(w, "%s\t%v\t%d\t%d\t%s\n", n.Name, n.Up, n.MTU, n.Mbit, strings.Join(n.Addresses, ", "))
	}
	fmt.Fprintln(w)
	for _, list := range []map[string]string{f.Libraries, f.Settings} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintf(w, "%s\t%s\n", name, list[name])
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range f.Findings {
		fmt.Fprintf(t.out, "\n%s:\n  %s\n", x.What, x.Remedy)
	}
	if len(f.Findings) > 0 {
		return errCheck
	}
	return nil
}

// addresses of an interface.
func addresses(name string) (out []string) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	list, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}
