/** The screen of a VM over VNC, with keyboard and mouse. */
import RFB from '@novnc/novnc';
import { useRef } from 'react';
import { useSocket, type Guest } from './socket';
import { LinkState, Refused } from './viewer';

export default function Screen({ guest }: { guest: Guest }) {
  const viewer = useRef<HTMLDivElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  const rfb = useRef<RFB | null>(null);
  const link = useSocket(guest, 'screen', (socket) => {
    const element = box.current;
    if (!element) return () => undefined;
    const screen = new RFB(element, socket, { shared: true });
    screen.scaleViewport = true;
    screen.background = 'var(--sunken)';
    // Keys, including Tab, go to the guest only after a click or the button, so that the page can
    // be left by keyboard.
    screen.focusOnClick = true;
    rfb.current = screen;
    let ended = false;
    screen.addEventListener('disconnect', () => (ended = true));
    return () => {
      rfb.current = null;
      if (!ended) screen.disconnect();
    };
  });
  const refused = link.state === 'refused';
  return (
    <div ref={viewer} className="viewer">
      <div className="viewer-tools" hidden={refused}>
        <LinkState link={link} />
        <button ref={first} type="button" className="btn btn-small" disabled={link.state !== 'open'} onClick={() => rfb.current?.focus()}>
          Type into the guest
        </button>
        <button type="button" className="btn btn-small" disabled={link.state !== 'open'} onClick={() => rfb.current?.sendCtrlAltDel()}>
          Send Ctrl Alt Del
        </button>
        <button type="button" className="btn btn-small" onClick={() => void viewer.current?.requestFullscreen()}>
          Full screen
        </button>
      </div>
      {refused && (
        <div className="card-body">
          <Refused error={link.error} what="screen" hint="A VM that boots a kernel without firmware, such as the demo guest, has a console only." />
        </div>
      )}
      {/* Handled before the guest receives the key, so that it is possible to leave the screen. */}
      <div
        ref={box}
        className="viewer-screen"
        hidden={refused}
        role="group"
        aria-label={`Screen of ${guest.name}`}
        onKeyDownCapture={(e) => {
          if (!e.ctrlKey || !e.shiftKey || e.code !== 'KeyX') return;
          e.preventDefault();
          e.stopPropagation();
          rfb.current?.blur();
          first.current?.focus();
        }}
      />
      <p className="viewer-hint" hidden={refused}>
        After a click, keys go to the guest. <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>X</kbd> leaves it.
      </p>
    </div>
  );
}
