// tidwall/wal with NoSync and a Sync for each entry. Before the Sync another program syncs a file of its own, and so the log's
// new length.
//
//	base run FOLDER N      entry N is reported once Sync returned
//	base check FOLDER      is every entry one that was written, and are the reported ones there?
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tidwall/wal"
)

func entry(number int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%d;", number), 20))
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(folder string, entries int) {
	options := *wal.DefaultOptions
	options.NoSync = true
	log, err := wal.Open(folder+"/log", &options)
	must(err)
	other, err := os.Create(folder + "/other")
	must(err)
	input := bufio.NewScanner(os.Stdin)
	for number := 1; number <= entries; number++ {
		must(log.Write(uint64(number), entry(number)))
		_, err = other.WriteString("data")
		must(err)
		must(other.Sync())
		must(log.Sync())
		fmt.Println("ACK", number)
		if !input.Scan() || input.Text() != "OK" {
			os.Exit(1)
		}
	}
}

func check(folder string, reported int) error {
	log, err := wal.Open(folder+"/log", nil)
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	for number := 1; number <= int(last); number++ {
		found, err := log.Read(uint64(number))
		if err != nil {
			return err
		}
		if !bytes.Equal(found, entry(number)) {
			return fmt.Errorf("entry %d has %d bytes that were never written", number, len(found))
		}
	}
	if int(last) < reported {
		return fmt.Errorf("%d of %d reported entries are there", last, reported)
	}
	return nil
}

func main() {
	if os.Args[1] == "run" {
		entries, err := strconv.Atoi(os.Args[3])
		must(err)
		run(os.Args[2], entries)
		return
	}
	reported, _ := strconv.Atoi(os.Getenv("FTLD_MARK"))
	must(check(os.Args[2], reported))
}
