// A recipe for `ftld crash-test`: bbolt 1.5.0 (`build.sh bbolt` makes the program; it needs Go). A batch is reported once Update
// returned.
//
//	bbolt run FOLDER BATCHES sync|no-sync
//	bbolt check FOLDER                      does it open, with whole pages and every reported batch?
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	bolt "go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(folder string, batches int, noSync bool) {
	base, err := bolt.Open(folder+"/base", 0o600, nil)
	must(err)
	base.NoSync = noSync
	input := bufio.NewScanner(os.Stdin)
	for number := 1; number <= batches; number++ {
		must(base.Update(func(update *bolt.Tx) error {
			bucket, err := update.CreateBucketIfNotExists([]byte("things"))
			for part := 0; part < 20 && err == nil; part++ {
				err = bucket.Put([]byte(fmt.Sprintf("%08d.%02d", number, part)), []byte(strings.Repeat("a thing ", 32)))
			}
			return err
		}))
		fmt.Println("ACK", number)
		if !input.Scan() || input.Text() != "OK" {
			os.Exit(1)
		}
	}
}

func check(folder string, reported int) {
	base, err := bolt.Open(folder+"/base", 0o600, nil)
	must(err)
	must(base.View(func(view *bolt.Tx) error {
		for damage := range view.Check() {
			return damage
		}
		found := 0
		if bucket := view.Bucket([]byte("things")); bucket != nil {
			found = bucket.Stats().KeyN
		}
		if found%20 != 0 || found/20 < reported {
			return fmt.Errorf("%d keys, %d batches of 20 were reported", found, reported)
		}
		return nil
	}))
}

func main() {
	switch {
	case len(os.Args) == 5 && os.Args[1] == "run":
		batches, err := strconv.Atoi(os.Args[3])
		must(err)
		run(os.Args[2], batches, os.Args[4] == "no-sync")
	case len(os.Args) == 3 && os.Args[1] == "check":
		if reported, err := strconv.Atoi(os.Getenv("FTLD_MARK")); err == nil {
			check(os.Args[2], reported)
		}
	default:
		os.Exit(126)
	}
}
