/** The entry point of the load balancer's console. */
import { start } from '../ui/start';
import { App } from './app';

start(<App />);
