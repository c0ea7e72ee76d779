package cpu_test

import (
	"testing"

	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
)

func TestContract(t *testing.T) {
	t.Parallel()
	if err := backendtest.Test(t.Context(), cpu.New()); err != nil {
		t.Error(err)
	}
}
