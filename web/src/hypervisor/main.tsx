/** The entry point of the hypervisor daemon's console. */
import { start } from '../ui/start';
import './styles.css';
import { App } from './app';

start(<App />);
