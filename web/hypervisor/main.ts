import '../src/hypervisor/main';
