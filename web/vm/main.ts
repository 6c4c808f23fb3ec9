import '../src/vm/main';
