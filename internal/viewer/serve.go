package viewer

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/internal/webpage"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

//go:embed page
var page embed.FS

// patience is how long a browser may take to read an event, and how long requests may go on when the server ends.
const patience = 10 * time.Second

// Listen opens an address for Serve: host and port, port 0 for any that is free.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: give another address, such as 127.0.0.1:0 for a port that is free", err)
	}
	return l, nil
}

// Serve serves the page until the context ends, and closes the listener. Where it listens to this machine alone, it answers only who calls it by a name
// of this machine, so that pages of others cannot read it under a name of theirs. No page of another origin may give orders.
func (v *Viewer) Serve(ctx context.Context, l net.Listener) error {
	handler := http.NewCrossOriginProtection().Handler(v.routes())
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		handler = local(handler)
	}
	base, stop := context.WithCancel(ctx) // events end with it
	defer stop()
	s := &http.Server{Handler: handler, ReadHeaderTimeout: patience, WriteTimeout: patience, BaseContext: func(net.Listener) context.Context { return base }}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.Shutdown(last); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// local refuses requests for other names than those of this machine.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		address, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !address.IsLoopback()) {
			http.Error(w, fmt.Sprintf("%s is no name of this machine", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routes are the page's files, events, pictures and orders.
func (v *Viewer) routes() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	mux := http.NewServeMux()
	static := http.FileServerFS(files)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'")
		static.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "style.css", time.Time{}, strings.NewReader(webpage.Style))
	})
	mux.HandleFunc("GET /events", v.events)
	mux.HandleFunc("GET /picture/{sequence}/{camera}", v.picture)
	mux.HandleFunc("POST /control/{order}", func(w http.ResponseWriter, r *http.Request) {
		if !v.control.order(r.PathValue("order")) {
			http.Error(w, "the orders are pause, play, step and again", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// about is what a browser is told first.
type about struct {
	Packages     []Package              `json:"packages"`
	Distances    [modeld.Points]float64 `json:"distances"` // of the points of lines, m
	CameraHeight float64                `json:"cameraHeight"`
}

// events sends the drive, then each frame that is the latest when the one before has gone out, and what becomes of pauses.
func (v *Viewer) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	to := http.NewResponseController(w)
	send := func(event string, data []byte) error {
		if err := to.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		if err := to.Flush(); err != nil {
			return err
		}
		return to.SetWriteDeadline(time.Time{}) // the next event may be long in coming
	}
	text, err := json.Marshal(about{v.packages, modeld.XIndex(), modeld.CameraHeight})
	if err != nil || send("drive", text) != nil {
		return
	}
	var sent *shown
	var last state
	for first := true; ; first = false {
		v.mu.Lock()
		latest, newer := (*shown)(nil), v.changed
		if len(v.frames) > 0 {
			latest = v.frames[len(v.frames)-1]
		}
		v.mu.Unlock()
		was, changed := v.control.now()
		if latest != sent {
			if send("frame", latest.text) != nil {
				return
			}
			sent = latest
		}
		if text, err := json.Marshal(was); err != nil || (first || last != was) && send("state", text) != nil {
			return
		}
		last = was
		select {
		case <-newer:
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// picture is a camera's picture of a frame that was shown lately.
func (v *Viewer) picture(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutSuffix(r.PathValue("camera"), ".jpg")
	sequence, err := strconv.Atoi(r.PathValue("sequence"))
	v.mu.Lock()
	var c *camera
	for _, f := range v.frames {
		if ok && err == nil && f.sequence == sequence {
			c = f.cameras[name]
		}
	}
	v.mu.Unlock()
	if c == nil {
		http.Error(w, "no such picture: it is of another camera than road and wide, or of a frame long ago", http.StatusNotFound)
		return
	}
	text, err := c.jpeg()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/jpeg")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // a browser that has gone needs none
}
