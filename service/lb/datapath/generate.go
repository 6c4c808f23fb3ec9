package datapath

// The compiler version is fixed, since other versions generate different code from the same source.
//go:generate go tool -modfile=../../../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -output-suffix _bpf -tags linux program bpf/balancer.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
