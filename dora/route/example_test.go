package route_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/dora/route"
)

// A log is written, found and read.
func Example() {
	dir, err := os.MkdirTemp("", "route")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	segment := filepath.Join(dir, "0000025d--6eb6bcbca4--0")
	if err := errors.Join(os.Mkdir(segment, 0o755), write(filepath.Join(segment, "rlog.zst"))); err != nil {
		log.Fatal(err)
	}

	found, err := route.Find(context.Background(), dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range found.Segments {
		fmt.Println(s.Name())
		if err := read(s.Files[route.RLog]); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0000025d--6eb6bcbca4--0
	// initData at 1 ns
	// carState at 2 ns: 12.5 m/s
	// {Events:2 Skipped:0 Malformed:0 Bytes:416}
}

func write(path string) error {
	w, err := route.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(
		w.Write(route.Event{Time: 1, Kind: route.KindInitData, Valid: true}, route.InitData{DeviceType: route.Tici}),
		w.Write(route.Event{Time: 2, Kind: route.KindCarState, Valid: true}, route.CarState{VEgo: 12.5}),
		w.Close())
}

func read(path string) error {
	r, err := route.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	var e route.Event
	var car route.CarState
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		switch e.Kind {
		case route.KindCarState:
			if err := e.Decode(&car); err != nil {
				fmt.Println("skipped:", err)
				continue
			}
			fmt.Printf("%s at %d ns: %g m/s\n", e.Kind, e.Time, car.VEgo)
		default:
			fmt.Printf("%s at %d ns\n", e.Kind, e.Time)
		}
	}
	fmt.Printf("%+v\n", r.Stats())
	var damage *route.Damage
	if err == io.EOF || errors.As(err, &damage) { // what came before the damage is good
		return nil
	}
	return err
}
