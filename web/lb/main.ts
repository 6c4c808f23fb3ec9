import '../src/lb/main';
