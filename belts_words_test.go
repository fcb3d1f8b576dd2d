package curfew

import "testing"

func TestChangeInWords(t *testing.T) {
	for _, c := range []struct {
		now, was, extra int64
		want            string
	}{
		{5, 0, 5, "the policy was changed: it would remove 5 rows, and 0 as it was before; 5 rows would have stayed"},
		{3, 2, 1, "the policy was changed: it would remove 3 rows, and 2 as it was before; 1 row would have stayed"},
		{0, 0, 90, "the policy was changed: it would remove 0 rows, and 0 as it was before; 90 rows would have stayed, of which some go only when an earlier stage is passed"},
	} {
		if got := changeInWords(c.now, c.was, c.extra); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
