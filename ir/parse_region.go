package ir

// regionAttr reads the value of family="loop" or members=2.
func (p *parser) regionAttr(r *Region, name string) {
	switch name {
	case "family":
		r.Family = p.quoted()
	case "members":
		r.Members = p.number()
	default:
		p.failf("a Region has no attribute %q", name)
	}
}

// operand reads N: storage [stacked] [read storage].
func (p *parser) operand(r *Region) {
	i := p.position(len(r.Operands))
	if p.err != nil {
		return
	}
	o := &r.Operands[i]
	o.Storage = p.storage()
	o.Batched = p.accept("stacked")
	if p.accept("read") {
		o.Read = p.storage()
	}
}

// position reads N: and checks that it is less than n.
func (p *parser) position(n int) int {
	i := p.number()
	if i < 0 || i >= n {
		p.failf("number %d of %d", i, n)
	}
	p.expect(":")
	return i
}

// storage reads what Storage.String prints.
func (p *parser) storage() (s Storage) {
	s.DType = p.dtype()
	if p.accept("scale") {
		s.Scale = word(p, parseFloat)
	}
	if p.accept("terms") {
		s.SplitTerms = p.number()
	}
	if s.PerChannel = p.accept("channels"); s.PerChannel {
		s.ChannelAxis = p.number()
	}
	if p.accept("blocks") {
		s.Block = p.number()
		p.expect("along")
		s.BlockAxis = p.number()
	}
	return s
}
