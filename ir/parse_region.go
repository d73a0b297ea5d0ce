package ir

import (
	"fmt"
	"strconv"
)

// regionAttrs reads {family="loop", members=2}.
func (p *parser) regionAttrs(r *Region) error {
	if err := p.expect("{"); err != nil {
		return err
	}
	for first := true; !p.accept("}"); first = false {
		if !first {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		name := p.tok
		p.advance()
		if err := p.expect("="); err != nil {
			return err
		}
		var err error
		switch name {
		case "family":
			r.Family, err = p.quoted()
		case "members":
			r.Members, err = p.number()
		default:
			err = fmt.Errorf("a Region has no attribute %q", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// operand reads N: storage [stacked] [read storage].
func (p *parser) operand(r *Region) error {
	i, err := p.position(len(r.Operands))
	if err != nil {
		return err
	}
	o := &r.Operands[i]
	if o.Storage, err = p.storage(); err != nil {
		return err
	}
	o.Stacked = p.accept("stacked")
	if p.accept("read") {
		o.Read, err = p.storage()
	}
	return err
}

// position reads N: and checks that it is less than n.
func (p *parser) position(n int) (int, error) {
	i, err := p.number()
	if err == nil && (i < 0 || i >= n) {
		err = fmt.Errorf("number %d of %d", i, n)
	}
	if err == nil {
		err = p.expect(":")
	}
	return i, err
}

// storage reads what Storage.String prints.
func (p *parser) storage() (s Storage, err error) {
	if s.DType, err = ParseDType(p.tok); err != nil {
		return s, err
	}
	p.advance()
	if p.accept("scale") {
		if s.Scale, err = parseFloat(p.tok); err != nil {
			return s, err
		}
		p.advance()
	}
	if p.accept("channels") {
		s.PerChannel = true
		if s.ChannelAxis, err = p.number(); err != nil {
			return s, err
		}
	}
	if p.accept("blocks") {
		if s.Block, err = p.number(); err != nil {
			return s, err
		}
		if err = p.expect("along"); err != nil {
			return s, err
		}
		s.BlockAxis, err = p.number()
	}
	return s, err
}

func (p *parser) number() (int, error) {
	n, err := strconv.Atoi(p.tok)
	if err != nil {
		return 0, p.unexpected("a number")
	}
	p.advance()
	return n, nil
}
