/** The entry point of VM management's console. */
import { start } from '../ui/start';
import './styles.css';
import { App } from './app';

start(<App />);
