// Command web is what the containers of tests run: a web server that does as its
// environment says.
//
//	web          serve "VERSION\n" on port 8080; with EXIT=n, exit at once with n
//	web check    exit with 0 if the server answers 200; with SICK set, it does not
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		r, err := http.Get("http://127.0.0.1:8080/")
		if err != nil || r.StatusCode != http.StatusOK {
			os.Exit(1)
		}
		return
	}
	if status, err := strconv.Atoi(os.Getenv("EXIT")); err == nil {
		fmt.Println("told to exit with", status)
		os.Exit(status)
	}
	// As process 1 of a container it would not end by a signal by itself.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat("/sick"); err == nil || os.Getenv("SICK") != "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, os.Getenv("VERSION"))
	})
	fmt.Println("serving", os.Getenv("VERSION"))
	if err := http.ListenAndServe(":8080", nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
