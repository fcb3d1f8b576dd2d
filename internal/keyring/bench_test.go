package keyring

import "testing"

func BenchmarkRowHash(b *testing.B) {
	k := testRing(b)
	for _, size := range []int{8, 16, 40, 200} {
		b.Run(map[int]string{8: "bigint", 16: "uuid", 40: "text40", 200: "text200"}[size], func(b *testing.B) {
			h := k.RowHasher("library", "public.circulation_event")
			row := make([]byte, size)
			var sum [16]byte
			b.ReportAllocs()
			for b.Loop() {
				row[0]++
				h.Sum(&sum, row)
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	k := testRing(b)
	text := make([]byte, 8000) // the keys of a batch of 1,000 rows
	b.ReportAllocs()
	for b.Loop() {
		k.Seal(text, []byte("run"))
	}
}
