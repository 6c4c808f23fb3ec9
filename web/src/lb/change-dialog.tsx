/** The commands that change a backend, ready to copy, each with what would remain in service. */
import { useId, useState, type ReactNode } from 'react';
import { CopyBox } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Notice } from '../ui/notice';
import { percent, plural } from '../ui/number';
import { commands, isOrchestratorDrained, remainingIf, shareWith, type Remaining } from './change';
import type { BackendOf } from './columns';
import { backendLabel } from './links';
import { useLive } from './live';
import type { Reading } from './rates';
import { backendState } from './states';

const most = 1000;

/** The error for a weight that the command does not accept. */
function wrongWeight(text: string): string | undefined {
  return /^\d{1,4}$/.test(text) && Number(text) <= most ? undefined : `Must be a whole number from 0 to ${most}.`;
}

/** Follows the readings while it is open, so that the remaining capacity is current. */
export function ChangeDialog({ backend, onClose }: { backend: BackendOf; onClose: () => void }) {
  const { reading } = useLive();
  return (
    <Dialog title={`Change ${backendLabel(backend)}`} onClose={onClose} wide>
      <div className="dialog-body stack">
        <p className="muted small">
          This console changes nothing. Run a command where <code>mainstay</code> is installed, with an admin key in <code>LB_API_KEY</code>, by <code>--token-file</code>, or in a context (<code>mainstay login lb</code>). What it
          changes is gone after a restart of the daemon.
        </p>
        {reading && <Choices reading={reading} of={backend} />}
      </div>
      <div className="dialog-foot">
        <button type="button" className="btn" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Choices({ reading, of }: { reading: Reading; of: BackendOf }) {
  const vip = reading.vips.find((v) => v.name === of.vip);
  const backend = vip?.backends.find((b) => b.id === of.id);
  const serves = reading.vips.filter((v) => v.backends.some((b) => b.id === of.id));
  const [weight, setWeight] = useState(String(of.weight));
  const [everywhere, setEverywhere] = useState(false);
  const field = useId();
  if (!vip || !backend) return <Notice tone="warn">{backendLabel(of)} is no longer a backend of {of.vip}.</Notice>;

  const wrong = wrongWeight(weight);
  const { drain, undrain, weight: weigh } = commands(backend, weight || '0', location.origin, everywhere || serves.length === 1 ? undefined : vip.name);
  const orchestrated = isOrchestratorDrained(backend, reading.node);
  return (
    <>
      <Choice title="Drain it" text="It gets no new connections; those that it has continue." command={drain}>
        {backend.adminDraining ? <p className="small">An operator drains it already.</p> : <Left all={remainingIf(reading.vips, of.id, false)} />}
      </Choice>
      <Choice title="Undo a drain" text="It gets new connections again, if it is healthy." command={undrain}>
        {!backend.adminDraining ? (
          <p className="small">No operator drains it; it is {backendState(backend)}.</p>
        ) : !backend.healthy || orchestrated ? (
          <p className="small">It would take no new connections all the same: {backend.healthy ? 'an orchestrator drains it, too' : 'it is down'}.</p>
        ) : (
          <Left all={remainingIf(reading.vips, of.id, true)} />
        )}
      </Choice>
      <Choice
        title="Change its weight"
        text={`It has ${backend.weight} at ${vip.name} now${backend.weightOverridden ? ', which an operator set' : ''}. 0 goes back to the configured weight.`}
        command={wrong ? undefined : weigh}
      >
        <div className="field">
          <label htmlFor={field}>Weight</label>
          <input id={field} className="input narrow" inputMode="numeric" autoComplete="off" value={weight} aria-invalid={wrong ? true : undefined} aria-describedby={`${field}-note`} onChange={(e) => setWeight(e.target.value.trim())} />
          <span id={`${field}-note`} className={wrong ? 'field-error' : 'field-hint'}>
            {wrong ?? shareText(shareWith(vip, of.id, backend.weight), Number(weight) === 0 ? undefined : shareWith(vip, of.id, Number(weight)), vip.name)}
          </span>
        </div>
        {serves.length > 1 && (
          <div className="check">
            <input id={`${field}-all`} type="checkbox" checked={everywhere} onChange={(e) => setEverywhere(e.target.checked)} />
            <label htmlFor={`${field}-all`}>At all {serves.length} VIPs that it serves, not only at {vip.name}</label>
          </div>
        )}
      </Choice>
    </>
  );
}

function shareText(now: number | undefined, then: number | undefined, vip: string): string {
  if (now === undefined) return 'It takes no new connections now.';
  return then === undefined ? `It gets ${percent(now)} of the new connections of ${vip} now.` : `It would get ${percent(then)} of the new connections of ${vip}; now it gets ${percent(now)}.`;
}

function Choice({ title, text, command, children }: { title: string; text: string; command: string | undefined; children: ReactNode }) {
  return (
    <section className="stack-tight" aria-label={title}>
      <h3>{title}</h3>
      <p className="muted small">{text}</p>
      {children}
      {command !== undefined && <CopyBox label={`Command: ${title.toLowerCase()}`} text={command} />}
    </section>
  );
}

function Left({ all }: { all: readonly Remaining[] }) {
  const none = all.filter((r) => r.takers === 0);
  return (
    <>
      {none.length > 0 && (
        <Notice tone="bad">
          <strong>No backend would take new connections of {none.map((r) => r.vip).join(', ')}.</strong>
        </Notice>
      )}
      {all
        .filter((r) => r.takers > 0)
        .map((r) => (
          <p key={r.vip} className="small">
            {r.takers} of {plural(r.total, 'backend')} of <span className="mono">{r.vip}</span> would take new connections; {percent(r.share)} of the weight.
          </p>
        ))}
    </>
  );
}

/** For lists of backends: the action of the rows, and the dialog that it opens. */
export function useChanges(): { actions: (backend: BackendOf) => { label: string; run: () => void }[]; dialog: ReactNode } {
  const [open, setOpen] = useState<BackendOf>();
  return {
    actions: (backend) => [{ label: 'Commands to change it…', run: () => setOpen(backend) }],
    dialog: open && <ChangeDialog backend={open} onClose={() => setOpen(undefined)} />,
  };
}
