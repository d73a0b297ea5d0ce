// Package route reads openpilot's logs (rlog and qlog) and finds the files of routes on disk.
//
//	Find      the segments below a directory, in whatever layout, with their logs and videos
//	Open      a Reader of one log: plain, .bz2 or .zst, decompressed as it is read
//	Reader    Next returns its events one by one; at a damaged end a *Damage, after all that came before it
//	Event     time, kind and validity; Decode reads its message
//	Writer    writes logs, for synthetic data sets
//
// A log is Cap'n Proto messages back to back, each an Event: a union of some 150 kinds of messages. The Go types of those that
// matter here (messages.go, model.go) are the schema: the tag of a field says where it is, and reader, writer and
// testdata/log.capnp, the schema for other readers, all follow the tags. Old logs have shorter structs; what they lack reads as its
// default.
//
// Pointers, segments and bounds are left to capnproto.org/go/capnp/v3: its accessors by offset need no generated code, check what
// hostile bytes claim, and decode all of a .zst log at some 300 MB/s a core (BenchmarkRead), so a decoder of our own would not
// pay. Only framing is read here: damage is to be known to the byte, and a header must not ask for more memory than a message can
// need. Bzip2 is the exception, at some 20 MB/s to decompress: recompress logs that are read often with zstd.
package route
