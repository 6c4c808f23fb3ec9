/** The entry point of the storage gateway's console. */
import { start } from '../ui/start';
import { App } from './app';

start(<App />);
