package repository

import (
	"bytes"
	"encoding/json"
	"testing"
)

// fuzzed is a domain whose sealer only authenticates, so that what the fuzzer makes reaches the
// decoders behind it.
func fuzzed() *domain {
	r := newRepository(nil, config{Cipher: Plain, BlockSize: MinBlockSize}, make([]byte, masterSize), Options{})
	return r.domainAt(ID{}.String())
}

func FuzzPack(f *testing.F) {
	d := fuzzed()
	p, code := newPack(packID{}), d.coder()
	for _, content := range [][]byte{[]byte("a"), bytes.Repeat([]byte("text "), 999)} {
		id := code.id(blockBlob, content)
		sealed := code.seal(blockBlob, id, content)
		p.add(packEntry{blockBlob, id, uint32(len(sealed)), uint32(len(content))}, sealed)
	}
	f.Add(p.finish(d), []byte{})
	f.Add([]byte(packMagic), appendEntries(nil, p.entries))
	f.Fuzz(func(t *testing.T, pack, list []byte) {
		// As it is, and with a trailer that is sealed rightly but says anything.
		forged := d.seal(append([]byte(packMagic), pack...), compressor().EncodeAll(list, nil), []byte(d.packName(packID{})))
		n := len(forged) - len(packMagic) - len(pack)
		for _, one := range [][]byte{pack, append(forged, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))} {
			_ = d.parsePack(packID{}, one, func(e *packEntry, sealed []byte) error {
				if len(sealed) != int(e.length) || e.raw > maxBlob {
					t.Errorf("%+v with %d bytes", e, len(sealed))
				}
				content, err := code.open(nil, e.kind, e.id, e.raw, sealed)
				if err == nil && code.id(e.kind, content) != e.id {
					t.Error("a blob without its id was opened")
				}
				return nil
			})
		}
	})
}

func FuzzBlob(f *testing.F) {
	f.Add(encodedZstd, compressor().EncodeAll(make([]byte, 1<<20), nil), 1<<20)
	f.Add(encodedRaw, []byte("raw"), 3)
	f.Fuzz(func(t *testing.T, encoding byte, body []byte, raw int) {
		if raw < 0 {
			return
		}
		content, err := decode(nil, encoding, body, raw)
		if err == nil && (len(content) != raw || raw > maxBlob) {
			t.Errorf("%d bytes instead of %d", len(content), raw)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(encodeIndex([]indexedPack{{size: 100, entries: []packEntry{{length: 50, raw: 60}}}}))
	f.Add(compressor().EncodeAll(make([]byte, 1<<20), nil))
	f.Fuzz(func(t *testing.T, packed []byte) {
		for _, one := range [][]byte{packed, compressor().EncodeAll(packed, nil)} {
			packs, err := decodeIndex(one)
			for i := range packs {
				if err == nil && sizeOf(packs[i].entries) > int64(packs[i].size) {
					t.Errorf("%+v", packs[i])
				}
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	text, err := json.Marshal(&Backup{Items: []Item{{Name: "root", Size: 1 << 20, Segments: make([]byte, 32)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"items":[{"size":9223372036854775807}]}`))
	d := fuzzed()
	f.Fuzz(func(t *testing.T, text []byte) {
		b := &Backup{}
		if openMeta(d.sealer, "x", d.seal(nil, compressor().EncodeAll(text, nil), []byte("x")), b) != nil || b.check(MinBlockSize) != nil {
			return
		}
		for i := range b.Items {
			it := &b.Items[i]
			for s := range int64(len(it.Segments) / len(blobID{})) {
				_ = it.segment(s)
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add(packID{ID{1}, 2}.String(), []byte("{}\n00"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if writer, number, ok := parseNumbered(name); ok && (packID{writer, number}).String() != name {
			t.Errorf("%q has a second spelling", name)
		}
		if cfg, _, _, err := parseConfig(content); err == nil && cfg.check() != nil {
			t.Errorf("%q", content)
		}
	})
}

// A bomb is refused before it takes memory: what decompresses to more than its limit does not open.
func TestDecompressionBombsAreRefused(t *testing.T) {
	t.Parallel()
	bomb := compressor().EncodeAll(make([]byte, 2*maxDecompressed), nil)
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	if _, err := decode(nil, encodedZstd, bomb, maxBlob); !isDamaged(err) {
		t.Errorf("as a blob: %v", err)
	}
	if _, err := decompress(bomb, maxDecompressed); !isDamaged(err) {
		t.Errorf("as an object: %v", err)
	}
	if _, err := decodeIndex(bomb); !isDamaged(err) {
		t.Errorf("as an index: %v", err)
	}
}
