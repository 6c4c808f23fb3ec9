/** The entry point of the hypervisor daemon's console. */
import { start } from '../ui/start';
import { App } from './app';

start(<App />);
