// Counts the system calls of a command, by the library for C:
//
//	go build -o count && ./count 'ls -l /etc'
package main

/*
#cgo LDFLAGS: -ldtrace_rs
#include <stdlib.h>
#include <dtrace.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// A Session belongs to one goroutine at a time.
type Session struct{ s *C.dt_session }

// Event is what a dt_event has, copied.
type Event struct {
	Kind   int
	Values []string
	Result int64
	Text   string
}

func (s Session) check(result C.int) C.int {
	if result < 0 {
		fmt.Fprintln(os.Stderr, "count:", C.GoString(C.dt_error(s.s, 0).text))
		os.Exit(1)
	}
	return result
}

func (s Session) events(each func(Event)) {
	for e := C.dt_next(s.s); e != nil; e = C.dt_next(s.s) {
		event := Event{Kind: int(e.kind), Result: int64(e.result), Text: C.GoString(e.text)}
		for _, value := range unsafe.Slice(e.values, int(e.values_count)) {
			event.Values = append(event.Values, C.GoStringN(value.text, C.int(value.length)))
		}
		each(event)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: count COMMAND")
		os.Exit(2)
	}
	s := Session{C.dt_open()}
	program := C.CString("syscall:::entry /pid == $target/ { @[probefunc] = count(); }")
	command := C.CString(os.Args[1])
	defer C.free(unsafe.Pointer(program))
	defer C.free(unsafe.Pointer(command))
	s.check(C.dt_program(s.s, nil, program))
	s.check(C.dt_command(s.s, command))
	s.check(C.dt_start(s.s))
	for s.check(C.dt_work(s.s, -1)) == 1 {
		s.events(func(e Event) { fmt.Fprintln(os.Stderr, e.Text) })
	}
	s.check(C.dt_finish(s.s, nil))
	s.events(func(e Event) {
		if e.Kind == C.DT_ROW {
			fmt.Printf("%-24s %d\n", e.Values[0], e.Result)
		}
	})
	C.dt_close(s.s)
}
