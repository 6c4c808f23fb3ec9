//go:build linux && race

package agent_test

func init() { raceDetector = true }
