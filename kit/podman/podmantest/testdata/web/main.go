// Command web runs in the containers of tests: a web server that is configured by
// its environment.
//
//	web          serve "VERSION\n" on port 8080; with EXIT=n, exit at once with n
//	web check    exit with 0 if the server answers 200; with SICK set, or after a
//	             POST to /sick, it does not
//
// A POST to /end makes it exit with 0. GET /env/NAME answers with a variable, GET /file/PATH with a file, and PUT
// /file/PATH writes one.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
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
	// As process 1 of a container, it ignores signals without a handler.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	var sick atomic.Bool
	sick.Store(os.Getenv("SICK") != "")
	http.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, os.Getenv("VERSION"))
	})
	http.HandleFunc("POST /sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	http.HandleFunc("POST /end", func(http.ResponseWriter, *http.Request) { os.Exit(0) })
	http.HandleFunc("GET /env/{name}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, os.Getenv(r.PathValue("name"))) })
	http.HandleFunc("GET /file/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile("/" + r.PathValue("path"))
		answer(w, content, err)
	})
	http.HandleFunc("PUT /file/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile("/"+r.PathValue("path"), content, 0o600)
		}
		answer(w, nil, err)
	})
	fmt.Println("serving", os.Getenv("VERSION"))
	if err := http.ListenAndServe(":8080", nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func answer(w http.ResponseWriter, content []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(content)
}
