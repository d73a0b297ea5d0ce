package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
)

// about are flags of every command, which print something and end it.
type about struct {
	Version    kong.VersionFlag `help:"Print the version and exit."`
	Completion string           `help:"Print completions for a shell and exit." enum:",bash,zsh,fish" default:"" placeholder:"bash|zsh|fish"`
	Man        bool             `help:"Print a manual page and exit."`
}

// print prints what was asked for, if anything was.
func (a *about) print(app *kong.Application, w io.Writer) (done bool, err error) {
	text := ""
	switch options := optionsOf(app); {
	case a.Man:
		text = manual(app, options)
	case a.Completion == "bash":
		text = bash(app.Name, options)
	case a.Completion == "zsh":
		text = zsh(app, options)
	case a.Completion == "fish":
		text = fish(app.Name, options)
	default:
		return false, nil
	}
	_, err = io.WriteString(w, text)
	return true, err
}

// asked reads these flags where parsing ends at a command that is missing: kong has set nothing then.
func (a *about) asked(args []string) bool {
	for i, arg := range args {
		switch name, value, given := strings.Cut(arg, "="); {
		case arg == "--man":
			a.Man = true
		case name == "--completion" && given:
			a.Completion = value
		case name == "--completion" && i+1 < len(args):
			a.Completion = args[i+1]
		}
	}
	return a.Man || slices.Contains([]string{"bash", "zsh", "fish"}, a.Completion)
}

// option is a flag as completions and manual pages show it.
type option struct {
	name   string // without dashes
	short  string // one letter, or none
	help   string
	value  string   // placeholder; none: the flag takes no value
	values []string // it can have; none: a file or any text
	many   bool     // the flag may be repeated
}

// optionsOf lists the flags of a command in the order of its help.
func optionsOf(app *kong.Application) (all []option) {
	values := map[string][]string{
		"precision":      precision.Names(),
		"target":         target.Names(),
		"device":         {"auto", "cuda", "emu"},
		"profile-device": target.Devices(),
	}
	flags := slices.Clone(app.Flags)
	for _, c := range app.Children { // commands of a command
		for _, f := range c.Flags {
			if !slices.ContainsFunc(flags, func(g *kong.Flag) bool { return g.Name == f.Name }) {
				flags = append(flags, f)
			}
		}
	}
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		o := option{name: f.Name, help: f.Help, many: f.IsCumulative()}
		if f.Short != 0 {
			o.short = string(f.Short)
		}
		if f.IsBool() {
			if f.Tag.Negatable != "" {
				o.name = "no-" + f.Name // it is on without the flag
				o.help = "Do not: " + o.help
			}
		} else {
			o.value = f.FormatPlaceHolder()
			if o.values = values[f.Name]; f.Enum != "" {
				o.values = strings.FieldsFunc(f.Enum, func(r rune) bool { return r == ',' })
			}
		}
		all = append(all, o)
	}
	return all
}

// bash completes flags, the values of those that have a list of them, and files.
func bash(name string, options []option) string {
	var flags []string
	var b strings.Builder
	function := "_" + strings.ReplaceAll(name, "-", "_")
	fmt.Fprintf(&b, "# bash completion for %s\n%s() {\n", name, function)
	b.WriteString("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n")
	b.WriteString("\tif [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n")
	b.WriteString("\tCOMPREPLY=()\n\tcase $prev in\n")
	for _, o := range options {
		spelled := o.spelled()
		flags = append(flags, spelled...)
		switch {
		case len(o.values) > 0:
			fmt.Fprintf(&b, "\t%s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); return ;;\n", strings.Join(spelled, "|"), strings.Join(o.values, " "))
		case o.value != "":
			fmt.Fprintf(&b, "\t%s) return ;;\n", strings.Join(spelled, "|")) // files, as below
		}
	}
	b.WriteString("\tesac\n")
	fmt.Fprintf(&b, "\tif [[ $cur == -* ]]; then mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); fi\n}\n", strings.Join(flags, " "))
	fmt.Fprintf(&b, "complete -o default -F %s %s\n", function, name) // without a reply, files
	return b.String()
}

// spelled are the ways to write the flag.
func (o option) spelled() []string {
	if o.short != "" {
		return []string{"--" + o.name, "-" + o.short}
	}
	return []string{"--" + o.name}
}

// zsh is a file _NAME for a directory of $fpath, or to be sourced.
func zsh(app *kong.Application, options []option) string {
	quote := func(s string) string {
		return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`, "'", `'\''`).Replace(s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n\n_%[1]s() {\n\t_arguments -S", app.Name)
	for _, o := range options {
		tail := "[" + quote(o.help) + "]"
		if o.value != "" {
			tail += ":" + quote(o.value) + ":"
			if tail += "_files"; len(o.values) > 0 {
				tail = strings.TrimSuffix(tail, "_files") + "(" + strings.Join(o.values, " ") + ")"
			}
		}
		for _, s := range o.spelled() {
			switch {
			case o.value != "" && strings.HasPrefix(s, "--"):
				s += "="
			case o.value != "":
				s += "+"
			}
			if o.many {
				s = "*" + s
			}
			fmt.Fprintf(&b, " \\\n\t\t'%s%s'", s, tail)
		}
	}
	for _, p := range app.Positional {
		begin := ":"
		if p.IsCumulative() {
			begin = "*:"
		}
		fmt.Fprintf(&b, " \\\n\t\t'%s%s:_files'", begin, quote(p.Name))
	}
	fmt.Fprintf(&b, "\n}\n\nif [ \"$funcstack[1]\" = \"_%[1]s\" ]; then\n\t_%[1]s \"$@\"\nelse\n\tcompdef _%[1]s %[1]s\nfi\n", app.Name)
	return b.String()
}

// fish has a line a flag.
func fish(name string, options []option) string {
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %s\n", name)
	for _, o := range options {
		fmt.Fprintf(&b, "complete -c %s -l %s", name, o.name)
		if o.short != "" {
			b.WriteString(" -s " + o.short)
		}
		switch {
		case len(o.values) > 0:
			fmt.Fprintf(&b, " -x -a '%s'", strings.Join(o.values, " "))
		case o.value != "":
			b.WriteString(" -r")
		}
		fmt.Fprintf(&b, " -d '%s'\n", quote(o.help))
	}
	return b.String()
}

// manual is the page in section 1, for man.
func manual(app *kong.Application, options []option) string {
	// A backslash, a dash that is no hyphen, and a line that begins like a request have their own spelling in roff.
	text := func(s string) string {
		s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
		if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
			s = `\&` + s
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"\" \"spark-compile %s\" \"spark-compile\"\n", strings.ToUpper(app.Name), text(Version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", text(app.Name), text(strings.TrimSuffix(app.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR", text(app.Name))
	for _, p := range app.Positional {
		dots := ""
		if p.IsCumulative() {
			dots = "..."
		}
		fmt.Fprintf(&b, " [\\fI%s\\fR]%s", text(p.Name), dots)
	}
	b.WriteString(" [\\fIflags\\fR]\n.SH ARGUMENTS\n")
	for _, p := range app.Positional {
		fmt.Fprintf(&b, ".TP\n\\fI%s\\fR\n%s\n", text(p.Name), text(p.Help))
	}
	b.WriteString(".SH OPTIONS\n")
	for _, o := range options {
		b.WriteString(".TP\n")
		for i, s := range o.spelled() {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "\\fB%s\\fR", text(s))
		}
		if o.value != "" {
			fmt.Fprintf(&b, " \\fI%s\\fR", text(o.value))
		}
		fmt.Fprintf(&b, "\n%s\n", text(o.help))
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range []struct {
		code int
		what string
	}{{Done, "done"}, {Failed, "a comparison, a case or a check failed"}, {BadInput, "wrong use or bad input"},
		{Bug, "a bug of " + app.Name + "; it names a file to report"}, {Interrupted, "interrupted"}} {
		fmt.Fprintf(&b, ".TP\n%d\n%s\n", c.code, text(c.what))
	}
	b.WriteString(".SH SEE ALSO\n\\fBspark\\-compile\\fR(1), \\fBspark\\-run\\fR(1), \\fBspark\\-info\\fR(1), \\fBspark\\-bench\\fR(1)\n")
	return b.String()
}
