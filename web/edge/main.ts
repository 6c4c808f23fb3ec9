import '../src/edge/main';
