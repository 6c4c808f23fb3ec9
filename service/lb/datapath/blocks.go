package datapath

import "math/bits"

// MaxBlocks is the maximum number of blocks of all port ranges of one IP family.
const MaxBlocks = 16384

// Block is a run of 2^Bits ports that starts at a multiple of its length. It is one entry of the
// kernel's trie of ranges.
type Block struct {
	First uint16
	Bits  int
}

// Last returns the last port of the block.
func (b Block) Last() uint16 { return uint16(int(b.First) + 1<<b.Bits - 1) }

// Blocks splits the range from first to last, both included, into the fewest blocks, at most 30.
func Blocks(first, last uint16) []Block {
	var blocks []Block
	for next := int(first); next <= int(last); {
		size := min(16, bits.TrailingZeros32(uint32(next)|1<<16))
		for next+1<<size-1 > int(last) {
			size--
		}
		blocks = append(blocks, Block{First: uint16(next), Bits: size})
		next += 1 << size
	}
	return blocks
}
