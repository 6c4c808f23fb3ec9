/**
 * The serial console of a VM in a terminal. After a reconnect, it continues where the last
 * connection ended.
 */
import { FitAddon } from '@xterm/addon-fit';
import { Terminal as XTerm, type ITerminalOptions } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState } from 'react';
import { colour, useDark } from '../theme';
import { toast } from '../toast';
import { useSocket, type Guest, type Position } from './socket';
import { styledElements } from './styled-elements';
import { LinkState, Refused } from './viewer';

const scrollback = 5_000;

/** The keys to copy, paste and leave. All other keys go to the guest. */
const isCopy = (e: KeyboardEvent) => e.ctrlKey && e.shiftKey && e.code === 'KeyC';
const isPaste = (e: KeyboardEvent) => e.ctrlKey && e.shiftKey && e.code === 'KeyV';
const isLeave = (e: KeyboardEvent) => e.ctrlKey && e.shiftKey && e.code === 'KeyX';

function set(terminal: XTerm, options: ITerminalOptions): void {
  terminal.options = options;
}

async function copy(terminal: XTerm): Promise<void> {
  if (!terminal.hasSelection()) {
    toast('Select something in the console first.', 'info');
    return;
  }
  try {
    await navigator.clipboard.writeText(terminal.getSelection());
    toast('Copied.');
  } catch {
    toast('The browser does not allow copying here.', 'warn');
  }
}

async function paste(terminal: XTerm): Promise<void> {
  try {
    terminal.paste(await navigator.clipboard.readText());
    terminal.focus();
  } catch {
    toast('The browser does not allow pasting by a button here. Press Ctrl Shift V in the console.', 'warn');
  }
}

/** Creates the terminal in its box and fits it to the box's size. */
function useTerminal(leave: () => void) {
  const box = useRef<HTMLDivElement>(null);
  const [terminal, setTerminal] = useState<XTerm>();
  const left = useRef(leave);
  useEffect(() => {
    left.current = leave;
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const plain = styledElements();
    const made = new XTerm({ fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'), fontSize: 13, scrollback, minimumContrastRatio: 4.5 });
    const fit = new FitAddon();
    made.loadAddon(fit);
    made.open(element);
    made.attachCustomKeyEventHandler((e) => {
      if (!isCopy(e) && !isPaste(e) && !isLeave(e)) return true;
      if (e.type === 'keydown') {
        if (isCopy(e)) {
          e.preventDefault();
          void copy(made);
        }
        if (isLeave(e)) left.current();
      }
      // The browser itself handles pasting.
      return false;
    });
    const resize = new ResizeObserver(() => fit.fit());
    resize.observe(element);
    setTerminal(made);
    return () => {
      resize.disconnect();
      made.dispose();
      plain();
      setTerminal(undefined);
    };
  }, []);
  return { box, terminal };
}

function useTheme(terminal: XTerm | undefined, box: React.RefObject<HTMLDivElement | null>): void {
  const dark = useDark();
  useEffect(() => {
    const element = box.current;
    if (!terminal || !element) return;
    const background = colour('--terminal-bg', element);
    set(terminal, { theme: { background, foreground: colour('--text', element), cursor: colour('--accent', element), cursorAccent: background, selectionBackground: colour('--terminal-selection', element) } });
  }, [terminal, box, dark]);
}

export default function Terminal({ guest }: { guest: Guest }) {
  const viewer = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  const { box, terminal } = useTerminal(() => first.current?.focus());
  useTheme(terminal, box);
  return (
    <div ref={viewer} className="viewer">
      {terminal ? <Connected guest={guest} terminal={terminal} first={first} onFull={() => void viewer.current?.requestFullscreen()} /> : <div className="viewer-tools" />}
      <div ref={box} className="viewer-screen" role="group" aria-label={`Console of ${guest.name}`} />
      <p className="viewer-hint">
        Keys go to the guest. <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>X</kbd> leaves the console, with <kbd>C</kbd> it copies and with <kbd>V</kbd> it pastes.
      </p>
    </div>
  );
}

function Connected({ guest, terminal, first, onFull }: { guest: Guest; terminal: XTerm; first: React.RefObject<HTMLButtonElement | null>; onFull: () => void }) {
  const [read, setRead] = useState(false);
  const reached = useRef<Position>({ log: '', offset: 0 });
  const attach = (socket: WebSocket) => {
    const bytes = new TextEncoder();
    const typed = terminal.onData((text) => socket.readyState === WebSocket.OPEN && socket.send(bytes.encode(text)));
    const binary = terminal.onBinary((text) => socket.readyState === WebSocket.OPEN && socket.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    socket.addEventListener('open', () => terminal.focus());
    let begun = false;
    socket.addEventListener('message', (e: MessageEvent<ArrayBuffer | string>) => {
      // The first message gives the position from which the console is replayed. The shell of a
      // sandbox is new each time and sends no position.
      const start = typeof e.data === 'string' ? (JSON.parse(e.data) as Position) : undefined;
      if (!begun && (start?.log !== reached.current.log || start.offset !== reached.current.offset)) terminal.reset();
      begun = true;
      if (start) reached.current = start;
      if (typeof e.data === 'string') return;
      reached.current.offset += e.data.byteLength;
      terminal.write(new Uint8Array(e.data));
    });
    return () => {
      typed.dispose();
      binary.dispose();
    };
  };
  const link = useSocket(guest, 'console', attach, () => reached.current);
  return (
    <>
      <div className="viewer-tools">
        <LinkState link={link} />
        <button ref={first} type="button" className="btn btn-small" onClick={() => void copy(terminal)}>
          Copy
        </button>
        <button type="button" className="btn btn-small" onClick={() => void paste(terminal)}>
          Paste
        </button>
        <button type="button" className="btn btn-small" onClick={() => terminal.clear()}>
          Clear
        </button>
        <button type="button" className="btn btn-small" onClick={onFull}>
          Full screen
        </button>
        <label className="check small">
          <input
            type="checkbox"
            checked={read}
            onChange={(e) => {
              set(terminal, { screenReaderMode: e.target.checked });
              setRead(e.target.checked);
            }}
          />{' '}
          Read out by screen readers
        </label>
      </div>
      {link.state === 'refused' && (
        <div className="card-body">
          <Refused error={link.error} what="console" />
        </div>
      )}
    </>
  );
}
