package machine

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
)

// Kind is the kind of a machine.
type Kind string

// Kinds of machines.
const (
	DGXSpark Kind = "DGX Spark"    // NVIDIA's own
	GB10     Kind = "GB10 machine" // the same chip from another vendor
	Other    Kind = "other"
)

// Identity names a machine and the evidence for it.
type Identity struct {
	Kind     Kind     `json:"kind"`
	Vendor   string   `json:"vendor,omitempty"`
	Product  string   `json:"product,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
}

// Name is vendor and product.
func (id *Identity) Name() string {
	return cmp.Or(strings.TrimSpace(id.Vendor+" "+id.Product), "unknown machine")
}

// products are the machines with a GB10. The firmware must name both vendor and product, since the same vendors sell
// other machines under similar names.
var products = []struct {
	vendor  string
	makers  []string // spellings in DMI's sys_vendor
	names   []string // spellings of the product, matched as whole words
	product string
	kind    Kind
}{
	{"NVIDIA", []string{"nvidia"}, []string{"dgx spark"}, "DGX Spark", DGXSpark},
	{"Dell", []string{"dell"}, []string{"pro max with gb10", "pro max gb10", "fcm1253"}, "Dell Pro Max with GB10", GB10},
	{"Acer", []string{"acer"}, []string{"veriton gn100", "gn100"}, "Veriton GN100", GB10},
	{"Lenovo", []string{"lenovo"}, []string{"thinkstation pgx"}, "ThinkStation PGX", GB10},
	{"ASUS", []string{"asus", "asustek"}, []string{"ascent gx10", "gx10"}, "Ascent GX10", GB10},
	{"HP", []string{"hp", "hewlett packard"}, []string{"zgx nano"}, "ZGX Nano", GB10},
	{"Gigabyte", []string{"gigabyte", "giga byte"}, []string{"ai top atom"}, "AI TOP ATOM", GB10},
	{"MSI", []string{"msi", "micro star"}, []string{"edgexpert", "ms c931"}, "EdgeXpert", GB10},
}

// Firmware files, relative to the root.
const (
	deviceTreeModel = "proc/device-tree/model"
	dmi             = "sys/class/dmi/id/"
)

// chip is a GPU's name and compute capability, which is zero if unknown.
type chip struct {
	name         string
	major, minor int
}

// identify recognises the machine. A visible GPU overrides the firmware: another GPU rules out a GB10 machine, and a
// GB10 makes it one even if the firmware is silent.
func identify(root fs.FS, chips []chip) Identity {
	id := firmware(root)
	var others []string
	seen := false
	for _, c := range chips {
		if isGB10(c) {
			seen = true
			id.Evidence = append(id.Evidence, "GPU: "+c.name)
		} else {
			others = append(others, c.name)
		}
	}
	switch {
	case seen && id.Kind == Other:
		id.Kind = GB10
	case !seen && len(others) > 0 && id.Kind != Other:
		id.Kind = Other
		id.Evidence = append(id.Evidence, "but its GPU is "+strings.Join(others, ", "))
	}
	return id
}

// isGB10 tells the chip from others with similar names and from others of the same compute capability.
func isGB10(c chip) bool {
	return hasWords(c.name, "gb10") && (c.major == 0 || c.major == 12 && c.minor == 1)
}

// firmware identifies the machine by device tree and DMI.
func firmware(root fs.FS) Identity {
	tree := firstLine(root, deviceTreeModel)
	maker := firstLine(root, dmi+"sys_vendor")
	id := Identity{Kind: Other, Vendor: maker, Product: firstLine(root, dmi+"product_name")}
	if id.Product == "" {
		id.Product = tree
	}
	for _, file := range []string{deviceTreeModel, dmi + "product_name", dmi + "product_family", dmi + "product_version", dmi + "board_name"} {
		text, by := firstLine(root, file), maker
		if file == deviceTreeModel {
			by = tree
		}
		for _, p := range products {
			if slices.ContainsFunc(p.makers, func(m string) bool { return hasWords(by, m) }) &&
				slices.ContainsFunc(p.names, func(n string) bool { return hasWords(text, n) }) {
				return Identity{Kind: p.kind, Vendor: p.vendor, Product: p.product, Evidence: []string{"/" + file + ": " + text}}
			}
		}
	}
	return id
}

// firstLine returns the first line of a file without the zero byte that ends a device tree string, or "".
func firstLine(root fs.FS, name string) string {
	raw, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimRight(string(raw), "\x00\n "), "\n")
	return strings.TrimSpace(strings.ToValidUTF8(line, ""))
}

// hasWords reports whether a text contains words in a row, ignoring case and separators: NVIDIA_DGX_Spark contains
// "dgx spark".
func hasWords(text, words string) bool {
	return strings.Contains(" "+plain(text)+" ", " "+words+" ")
}

func plain(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ")
}
