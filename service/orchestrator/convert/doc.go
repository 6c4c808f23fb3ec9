// Package convert turns a workload (package spec) into what a runtime is told. Its functions are plain: the same
// workload gives the same result, and nothing is asked or changed.
//
//	convert.go      what all conversions share: who owns what is made, and what they cannot do
//	podman.go       the containers of a workload in Podman
//	kubernetes.go   the objects of a workload in Kubernetes
//	pod.go          its pods
//	kubevirt.go     the VMs of a workload in KubeVirt
//	cloudinit.go    what runs in them
//	kubenetwork.go  who reaches them: Services, Ingresses and NetworkPolicies
//
// # Invariants
//
//   - What a runtime cannot do is a problem, with the path of the key in the document. What it does in another way is a
//     warning. Nothing is left out without a word.
//   - All that is made carries the id of the orchestrator and the uid of the workload (Owner). By them, it is told from
//     what others have made.
//   - Names that are made of a workload's and a part's are joined by two hyphens, which no name has. So they are never
//     those of another workload.
//   - Values of secrets are not part of a conversion, which says under which names the runtime is given them. The only
//     exception is CloudInit.
package convert
