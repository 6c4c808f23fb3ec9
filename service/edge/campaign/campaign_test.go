package campaign_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge/campaign"
)

func TestStagesMustRiseTo100(t *testing.T) {
	t.Parallel()
	for _, stages := range [][]int{nil, {50}, {5, 5, 100}, {25, 5, 100}, {0, 100}, {100, 101}} {
		if err := campaign.CheckStages(stages); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", stages, err)
		}
	}
	if err := campaign.CheckStages([]int{1, 2, 100}); err != nil {
		t.Error(err)
	}
}

func TestEveryStageHasADeviceAndTheLastHasAll(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		stages := []int{1 + rnd.IntN(30), 31 + rnd.IntN(60), 100}
		total := rnd.Int64N(5000)
		before := int64(0)
		for i := range stages {
			n := campaign.Upto(stages, i, total)
			if n > total || n < before || (n == before && before < total) {
				t.Fatalf("stages %v of %d devices: %d up to stage %d, %d before", stages, total, n, i, before)
			}
			before = n
		}
		if before != total {
			t.Fatalf("the last stage of %v leaves out %d of %d", stages, total-before, total)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	plan := campaign.Plan{SuccessThreshold: 0.9, FailureThreshold: 0.1, MinDevices: 5, Soak: time.Minute}
	auto, strict := plan, plan
	auto.AutoPromote, strict.AutoAbort = true, true
	for _, tt := range []struct {
		name  string
		plan  campaign.Plan
		state campaign.State
		want  campaign.Decision
	}{
		{"nothing has happened", plan, campaign.State{Asked: campaign.Counts{Pending: 10}, Soaked: -1}, campaign.Wait},
		{"too many failures", plan, campaign.State{Asked: campaign.Counts{Failed: 2, Succeeded: 3, Pending: 5}, Soaked: -1}, campaign.Pause},
		{"too many failures, strict", strict, campaign.State{Asked: campaign.Counts{Failed: 2, Succeeded: 3, Pending: 5}, Soaked: -1}, campaign.Abort},
		{"failures before enough have finished", strict, campaign.State{Asked: campaign.Counts{Failed: 2, Pending: 8}, Soaked: -1}, campaign.Wait},
		{"a small stage is judged when it is done", plan, campaign.State{Asked: campaign.Counts{Failed: 1, Succeeded: 1}, Soaked: -1}, campaign.Pause},
		{"already paused", plan, campaign.State{Asked: campaign.Counts{Failed: 5}, Paused: true, Soaked: -1}, campaign.Wait},
		{"threshold met", plan, campaign.State{Asked: campaign.Counts{Succeeded: 9, Pending: 1}, Soaked: -1}, campaign.Met},
		{"soaking", auto, campaign.State{Asked: campaign.Counts{Succeeded: 10}, Soaked: time.Second}, campaign.Wait},
		{"soaked", auto, campaign.State{Asked: campaign.Counts{Succeeded: 10}, Soaked: time.Minute}, campaign.Promote},
		{"soaked, but a person promotes", plan, campaign.State{Asked: campaign.Counts{Succeeded: 10}, Soaked: time.Hour}, campaign.Wait},
		{"last stage done", plan, campaign.State{Asked: campaign.Counts{Succeeded: 10}, FinalStage: true, Soaked: -1}, campaign.Complete},
		{"last stage not done", plan, campaign.State{Asked: campaign.Counts{Succeeded: 9, InProgress: 1}, FinalStage: true, Soaked: -1}, campaign.Wait},
		{"removed devices do not count", plan, campaign.State{Asked: campaign.Counts{Succeeded: 9, Removed: 100}, FinalStage: true, Soaked: -1}, campaign.Complete},
		{"all devices went away", plan, campaign.State{Asked: campaign.Counts{Removed: 3}, FinalStage: true, Soaked: -1}, campaign.Complete},
	} {
		if got, reason := campaign.Decide(tt.plan, tt.state); got != tt.want {
			t.Errorf("%s: decided %d (%s), want %d", tt.name, got, reason, tt.want)
		}
	}
}

func TestPositionsAreStableAndSpread(t *testing.T) {
	t.Parallel()
	first := campaign.Position("c", "d")
	if again := campaign.Position("c", "d"); again != first || first == campaign.Position("c2", "d") {
		t.Error("a position must depend on campaign and device, and on nothing else")
	}
}
