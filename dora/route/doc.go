// Package route reads openpilot's logs (rlog and qlog) and finds the files of routes on disk.
//
//	Find      the segments below a directory, in whatever layout, with their logs and videos
//	Open      a Reader of one log: plain, .bz2 or .zst, decompressed as it is read
//	Reader    Next returns its events one by one; at a damaged end a *Damage, after all that came before it
//	Event     time, kind and validity; Decode reads its message
//	Writer    writes logs, for data sets that are made up
//
// A log is Cap'n Proto messages back to back, each an Event: a union of some 150 kinds of messages. The Go types of those that
// matter here (messages.go, model.go) are the schema: the tag of a field says where it is, and reader, writer and the tests'
// schema for other readers all follow the tags. Old logs have shorter structs; what they lack reads as its default.
//
// Pointers, segments and bounds are capnproto.org/go/capnp/v3's. Framing is read here, since where a log breaks off is to be known
// to the byte and a header must not ask for more memory than a message can need.
package route
