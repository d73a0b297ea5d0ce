package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
)

// about are flags of every command: those that print something and end it, and what it may take of the machine.
type about struct {
	Memory memory.Budget `help:"Memory that reading files and evaluating constants may take; default: half of the machine's." placeholder:"8GiB"`

	Version    kong.VersionFlag `help:"Print the version and exit."`
	Completion string           `help:"Print completions for a shell and exit." enum:",bash,zsh,fish" default:"" placeholder:"bash|zsh|fish"`
	Man        bool             `help:"Print a manual page and exit."`
}

// print prints what was asked for, if anything was.
func (a *about) print(app *kong.Application, w io.Writer) (done bool, err error) {
	describe := map[string]func(*kong.Application) string{"bash": bash, "zsh": zsh, "fish": fish}[a.Completion]
	if a.Man {
		describe = manual
	}
	if describe == nil {
		return false, nil
	}
	app.Name = linkOf(app.Name)
	_, err = io.WriteString(w, describe(app))
	return true, err
}

// Describe prints the completions or the manual page of a program that runs commands by its first argument, if the arguments ask
// for them. It reports whether they do.
func Describe(name, summary string, commands map[string]string, args []string, w io.Writer) bool {
	var about about
	if !about.asked(args) {
		return false
	}
	options := []kong.Option{kong.Name(name), kong.Description(summary), kong.Embed(&about)}
	for _, c := range slices.Sorted(maps.Keys(commands)) {
		options = append(options, kong.DynamicCommand(c, commands[c], "", &struct{}{}))
	}
	p, err := kong.New(&struct{}{}, options...)
	if err == nil {
		_, err = about.print(p.Model, w)
	}
	return err == nil
}

// linkOf is the name of a command as shells, man and files know it, which is one word: spark-compile for spark compile.
func linkOf(name string) string { return strings.ReplaceAll(name, " ", "-") }

// asked reads these flags where parsing ends at an argument or a command that is missing: kong has set nothing then.
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

// allOptions lists the flags of a command and of all commands that it has.
func allOptions(app *kong.Application) []option {
	all := optionsOf(app.Node)
	for _, c := range app.Children {
		for _, o := range optionsOf(c) {
			if !slices.ContainsFunc(all, func(p option) bool { return p.name == o.name }) {
				all = append(all, o)
			}
		}
	}
	return all
}

// commandsOf are the names of the commands that a command has.
func commandsOf(app *kong.Application) (names []string) {
	for _, c := range app.Children {
		names = append(names, c.Name)
	}
	return names
}

// optionsOf lists the flags of a command in the order of its help.
func optionsOf(node *kong.Node) (all []option) {
	values := map[string][]string{
		"precision":      precision.Names(),
		"target":         target.Names(),
		"device":         {"auto", "cuda", "emu"},
		"profile-device": target.Devices(),
	}
	for _, f := range node.Flags {
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
func bash(app *kong.Application) string {
	var flags []string
	var b strings.Builder
	function := "_" + strings.ReplaceAll(app.Name, "-", "_")
	fmt.Fprintf(&b, "# bash completion for %s\n%s() {\n", app.Name, function)
	b.WriteString("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n")
	b.WriteString("\tif [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n")
	b.WriteString("\tCOMPREPLY=()\n\tcase $prev in\n")
	for _, o := range allOptions(app) {
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
	if names := commandsOf(app); names != nil {
		fmt.Fprintf(&b, "\tif [[ $COMP_CWORD == 1 ]]; then mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); fi\n", strings.Join(names, " "))
	}
	fmt.Fprintf(&b, "\tif [[ $cur == -* ]]; then mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); fi\n}\n", strings.Join(flags, " "))
	fmt.Fprintf(&b, "complete -o default -F %s %s\n", function, app.Name) // without a reply, files
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
func zsh(app *kong.Application) string {
	quote := func(s string) string {
		return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`, "'", `'\''`).Replace(s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n\n_%[1]s() {\n\t_arguments -S", app.Name)
	for _, o := range allOptions(app) {
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
	if names := commandsOf(app); names != nil {
		fmt.Fprintf(&b, " \\\n\t\t'1:command:(%s)' \\\n\t\t'*::_files'", strings.Join(names, " "))
	}
	fmt.Fprintf(&b, "\n}\n\nif [ \"$funcstack[1]\" = \"_%[1]s\" ]; then\n\t_%[1]s \"$@\"\nelse\n\tcompdef _%[1]s %[1]s\nfi\n", app.Name)
	return b.String()
}

// fish has a line a flag.
func fish(app *kong.Application) string {
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %s\n", app.Name)
	for _, c := range app.Children {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -f -a %s -d '%s'\n", app.Name, c.Name, quote(c.Help))
	}
	for _, o := range allOptions(app) {
		fmt.Fprintf(&b, "complete -c %s -l %s", app.Name, o.name)
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
func manual(app *kong.Application) string {
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
	if len(app.Children) > 0 {
		b.WriteString(" \\fIcommand\\fR")
	}
	usage := func(node *kong.Node) {
		for _, p := range node.Positional {
			form := " [\\fI%s\\fR]"
			if p.Required {
				form = " \\fI%s\\fR"
			}
			if p.IsCumulative() {
				form += "..."
			}
			fmt.Fprintf(&b, form, text(p.Name))
		}
		b.WriteString(" [\\fIflags\\fR]\n")
	}
	// arguments and flags, with a heading or without
	list := func(node *kong.Node, arguments, options string) {
		if len(node.Positional) > 0 {
			b.WriteString(arguments)
		}
		for _, p := range node.Positional {
			fmt.Fprintf(&b, ".TP\n\\fI%s\\fR\n%s\n", text(p.Name), text(p.Help))
		}
		b.WriteString(options)
		for _, o := range optionsOf(node) {
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
	}
	usage(app.Node)
	list(app.Node, ".SH ARGUMENTS\n", ".SH OPTIONS\n")
	for i, c := range app.Children {
		if i == 0 {
			b.WriteString(".SH COMMANDS\n")
		}
		fmt.Fprintf(&b, ".SS \\fB%s\\fR", text(c.Name))
		usage(c)
		fmt.Fprintf(&b, "%s\n", text(c.Help))
		list(c, "", "")
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range []struct {
		code int
		what string
	}{{Done, "done"}, {Failed, "a comparison, a case or a check failed"}, {BadInput, "wrong use or bad input"},
		{Bug, "a bug of " + app.Name + "; it names a file to report"}, {Interrupted, "interrupted"}} {
		fmt.Fprintf(&b, ".TP\n%d\n%s\n", c.code, text(c.what))
	}
	b.WriteString(".SH SEE ALSO\n\\fBspark\\fR(1), \\fBspark\\-compile\\fR(1), \\fBspark\\-run\\fR(1), \\fBspark\\-info\\fR(1), \\fBspark\\-bench\\fR(1), \\fBspark\\-dora\\fR(1)\n")
	return b.String()
}
