import '../src/storage/main';
