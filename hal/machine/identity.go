package machine

import (
	"io/fs"
	"slices"
	"strings"
)

// Kind says what sort of machine it is.
type Kind string

// Kinds of machines.
const (
	DGXSpark Kind = "DGX Spark"    // NVIDIA's own
	GB10     Kind = "GB10 machine" // the same chip, sold by somebody else
	Other    Kind = "other"
)

// Identity is what a machine is, and by what it was recognised.
type Identity struct {
	Kind     Kind     `json:"kind"`
	Vendor   string   `json:"vendor,omitempty"`
	Product  string   `json:"product,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
}

// products are the machines with a GB10. A product's name must be in the firmware's own words, beside its vendor's: the
// same vendors sell other machines under similar names.
var products = []struct {
	vendor  string
	makers  []string // as DMI's sys_vendor spells them
	names   []string // any of them, as whole words
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

// Files of the firmware, below the root.
const (
	deviceTreeModel = "proc/device-tree/model"
	dmi             = "sys/class/dmi/id/"
)

// chip is a GPU as far as identity goes; the capability is zero where it is unknown.
type chip struct {
	name         string
	major, minor int
}

// identify recognises the machine. The GPU decides where one is seen: firmware names a GB10 machine only as long as no
// other GPU contradicts it, and a machine whose firmware says nothing is one by its GPU alone.
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

// isGB10 tells the chip from others whose names begin alike, and from other chips of its capability.
func isGB10(c chip) bool {
	return hasWords(c.name, "gb10") && (c.major == 0 || c.major == 12 && c.minor == 1)
}

// firmware reads device tree and DMI.
func firmware(root fs.FS) Identity {
	tree := firstLine(root, deviceTreeModel)
	maker := firstLine(root, dmi+"sys_vendor")
	id := Identity{Kind: Other, Vendor: maker, Product: firstLine(root, dmi+"product_name")}
	if id.Product == "" {
		id.Product = tree
	}
	sources := []struct{ file, maker, text string }{{deviceTreeModel, tree, tree}}
	for _, f := range []string{"product_name", "product_family", "product_version", "board_name"} {
		sources = append(sources, struct{ file, maker, text string }{dmi + f, maker, firstLine(root, dmi+f)})
	}
	for _, s := range sources {
		for _, p := range products {
			if slices.ContainsFunc(p.makers, func(m string) bool { return hasWords(s.maker, m) }) &&
				slices.ContainsFunc(p.names, func(n string) bool { return hasWords(s.text, n) }) {
				return Identity{Kind: p.kind, Vendor: p.vendor, Product: p.product, Evidence: []string{"/" + s.file + ": " + s.text}}
			}
		}
	}
	return id
}

// firstLine reads a file of one line; the device tree ends its strings with a zero byte.
func firstLine(root fs.FS, name string) string {
	raw, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimRight(string(raw), "\x00\n "), "\n")
	return strings.TrimSpace(strings.ToValidUTF8(line, ""))
}

// hasWords says that a text contains words in a row. Case and what stands between words do not matter:
// NVIDIA_DGX_Spark has the words of DGX Spark.
func hasWords(text, words string) bool {
	return strings.Contains(" "+plain(text)+" ", " "+words+" ")
}

func plain(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ")
}
